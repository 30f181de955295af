"""golden.machine.dma against the pseudo-code of the instruction set, executed byte by byte."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.benches.dma_bench import GOOD_LOAD, ILLEGAL_LOADS
from lutterfly.golden import isa
from lutterfly.golden.machine.dma import fill, load, store
from lutterfly.golden.machine.flights import CommandError
from lutterfly.golden.memories import SHARED_MEMORIES, LocalMemory
from lutterfly.golden.units import ErrorCode, Unit

LANES = 4


def memories() -> dict[LocalMemory, np.ndarray]:
    return {memory: np.full(512, 0xA5, np.uint8) for memory in SHARED_MEMORIES}


def command(fmt: isa.Format, **fields: int) -> isa.CommandFields:
    return fmt.read(fmt.encode(**fields))


@pytest.mark.parametrize("seed", range(20))
def test_load_follows_the_pseudo_code(seed: int) -> None:
    rng = np.random.default_rng(seed)
    external = rng.integers(0, 256, 1024, dtype=np.uint8)
    pieces, size, rows, folds = (int(n) for n in rng.integers(1, 5, 4))
    pitches = {
        name: int(rng.integers(-9, 10))
        for name in ("external_row", "external_fold", "local_row", "local_fold", "local_piece")
    }
    fields = {
        "external": 500,
        "local": 250,
        "row_pieces": pieces,
        "piece_bytes": size,
        "rows": rows,
        "folds": folds,
        **pitches,
    }
    expected = memories()[LocalMemory.FEATURE]
    for row in range(rows):
        for fold in range(folds):
            run = external[500 + row * pitches["external_row"] + fold * pitches["external_fold"] :]
            for piece in range(pieces):
                at = 250 + row * pitches["local_row"] + fold * pitches["local_fold"] + piece * pitches["local_piece"]
                expected[at : at + size] = run[piece * size :][:size]
    actual = memories()
    load(command(isa.LOAD, **fields), external, actual, lanes=LANES)
    np.testing.assert_array_equal(actual[LocalMemory.FEATURE], expected)


@pytest.mark.parametrize("fields", ILLEGAL_LOADS)
def test_illegal_load_writes_nothing(fields: dict[str, int]) -> None:
    actual = memories()
    with pytest.raises(CommandError) as error:
        load(command(isa.LOAD, **{**GOOD_LOAD, **fields}), np.zeros(64, np.uint8), actual, lanes=LANES)
    assert (error.value.code, error.value.unit) == (ErrorCode.ILLEGAL_FIELD, Unit.LOAD)
    assert all((memory == 0xA5).all() for memory in actual.values())


def test_a_piece_out_of_range_stops_the_load_there() -> None:
    actual = memories()
    fields = {"local": 500, "row_pieces": 4, "piece_bytes": 4, "rows": 1, "folds": 1, "local_piece": 6}
    with pytest.raises(CommandError) as error:
        load(command(isa.LOAD, **fields), np.zeros(64, np.uint8), actual, lanes=LANES)
    assert (error.value.code, error.value.address) == (ErrorCode.ADDRESS_RANGE, 512)
    assert np.flatnonzero(actual[LocalMemory.FEATURE] == 0).tolist() == [*range(500, 504), *range(506, 510)]


def test_a_negative_address_is_out_of_range() -> None:
    with pytest.raises(CommandError) as error:
        fill(command(isa.FILL, local=2, piece_bytes=2, rows=2, local_row=-3), np.zeros(512, np.uint8))
    assert (error.value.code, error.value.unit, error.value.address) == (
        ErrorCode.ADDRESS_RANGE,
        Unit.FILL,
        (1 << 24) - 1,
    )


def test_fill_and_store() -> None:
    feature, external = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    fill(command(isa.FILL, local=3, piece_bytes=2, rows=3, local_row=10, value=7), feature)
    assert np.flatnonzero(feature).tolist() == [3, 4, 13, 14, 23, 24]
    store(
        command(isa.STORE, external=40, local=2, row_bytes=4, rows=2, external_row=-8, local_row=20), external, feature
    )
    assert external[40:44].tolist() == [0, 7, 7, 0]
    assert external[32:36].tolist() == [0, 7, 7, 0]


def test_external_memory_is_bounded() -> None:
    with pytest.raises(CommandError) as error:
        store(command(isa.STORE, external=60, row_bytes=8, rows=1), np.zeros(64, np.uint8), np.zeros(64, np.uint8))
    assert (error.value.code, error.value.unit, error.value.address) == (ErrorCode.AXI_DECODE, Unit.STORE, 60)


def test_wrong_dtype() -> None:
    with pytest.raises(TypeError, match=r"^feature must be uint8, not int8$"):
        fill(command(isa.FILL, piece_bytes=1, rows=1), np.zeros(4, np.int8))
