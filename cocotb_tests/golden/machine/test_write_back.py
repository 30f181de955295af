"""Packed results: which commands may have them, and what their windows write."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import BINARY_MAXIMUM, FPC, MAC, MAXIMUM, XNOR, EngineConfigs
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.machine.write_back import is_packed_legally, pack_windows, packs, written_span
from lutterfly.golden.presets import PRESETS

WITHOUT = dataclasses.replace(PRESETS["tiny"], engines=EngineConfigs.of(MAC, MAXIMUM))
#: Two and eight columns.
NARROW, WIDE = (
    dataclasses.replace(PRESETS[name], engines=PRESETS[name].engines.having(FPC, FpcConfig(2)))
    for name in ("tiny", "ecp5-85k")
)
COMMAND = {"engine": int(MAC), "packed": 1, "tile_inner": 1, "lanes": 2, "inner": 4}


@pytest.mark.parametrize("engine", [XNOR, BINARY_MAXIMUM])
def test_engines_of_binary_values_bring_it(engine: Engine) -> None:
    assert not packs(WITHOUT)
    assert packs(dataclasses.replace(WITHOUT, engines=WITHOUT.engines.having(engine, engine.configuration())))
    assert not is_packed_legally(COMMAND, WITHOUT)
    assert is_packed_legally(COMMAND | {"packed": 0}, WITHOUT)


@pytest.mark.parametrize(
    ("fields", "narrow", "wide"),
    [
        ({}, True, True),
        ({"inner": 500}, True, True),
        ({"tile_inner": 0}, False, True),
        ({"lanes": 3}, True, True),
        ({"engine": int(FPC)}, True, True),
        ({"packed": 0, "inner": 5, "tile_inner": 0}, True, True),
    ],
)
def test_conditions(fields: dict[str, int], narrow: bool, wide: bool) -> None:
    assert is_packed_legally(COMMAND | fields, NARROW) is narrow
    assert is_packed_legally(COMMAND | fields, WIDE) is wide


def test_what_a_window_writes() -> None:
    wide, narrow = {"packed": 1, "lanes": 16}, {"packed": 1, "lanes": 3}
    assert [written_span(wide, 2, count, WIDE) for count in (1, 8, 9, 16)] == [(0, 1), (0, 1), (0, 2), (0, 2)]
    # Four bits each, the last window two.
    assert [written_span(narrow, tile, 3, NARROW) for tile in range(4)] == [(0, 1), (0, 1), (1, 1), (1, 1)]
    assert written_span({"packed": 1, "lanes": 6}, 1, 6, NARROW) == (0, 2)
    assert written_span({"packed": 1, "lanes": 6}, 1, 1, NARROW) == (0, 1)
    assert written_span(wide | {"packed": 0}, 1, 9, WIDE) == (0, 9)


@pytest.mark.parametrize(
    ("columns", "lanes", "inner"), [(8, 8, 3), (16, 16, 2), (2, 2, 9), (2, 1, 3), (2, 6, 5), (4, 3, 7), (4, 16, 3)]
)
def test_windows_are_bits(columns: int, lanes: int, inner: int) -> None:
    engines = EngineConfigs.of(MAC, XNOR)
    config = dataclasses.replace(WIDE, array=ArrayConfig(lanes=16, columns=columns, requant_lanes=1), engines=engines)
    rng = np.random.default_rng(columns)
    results = rng.integers(-128, 128, (2, 3, inner, lanes), dtype=np.int8)
    valid = np.ones(results.shape, np.bool_)
    valid[:, :, -1, lanes // 2 + 1 :] = False
    command = {"packed": 1, "lanes": lanes, "inner": inner}
    found = pack_windows(command, results[..., None, :], valid[..., None, :], config)[..., 0, :]
    for outside in np.ndindex(2, 3):
        string = 0
        for number in range(inner):
            # Bits of a window begin at a whole piece after those before it, where a byte takes several windows.
            start = number * -(-lanes // columns) * columns if columns < 8 else 0
            string = string if columns < 8 else 0
            for lane in range(lanes):
                if valid[(*outside, number, lane)] and results[(*outside, number, lane)] >= 0:
                    string |= 1 << start + lane
            count = np.count_nonzero(valid[(*outside, number)])
            first, size = written_span(command, number, int(count), config)
            expected = (string >> 8 * first & (1 << 8 * size) - 1).to_bytes(size, "little")
            assert found[(*outside, number)].tobytes()[:size] == expected, (outside, number)
