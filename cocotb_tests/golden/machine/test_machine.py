"""The golden machine: single commands against the pseudo-code, hazards that it must show, tensors, and errors."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from cocotb_tests.support.programs import place
from lutterfly.golden import isa
from lutterfly.golden.engines import DEPTHWISE, MAC, MAXIMUM, find_engine
from lutterfly.golden.isa import COMPUTE, END, FILL, LIST_CLEAR, LIST_FIRE, LOAD, STORE, SYNC
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.images import tensor_codes, tensor_image
from lutterfly.golden.machine.machine import ORDERS, Machine
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.numerics.requant import pack_parameters, requantise
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import QueueProgram, Queues
from lutterfly.golden.units import ErrorCode, Unit

CONFIG = PRESETS["tiny"]
LANES, COLUMNS = CONFIG.array.lanes, CONFIG.array.columns
ARENA_BYTES = 4096
COMPUTE_AT = 2048

#: A copy of 4 bytes from 0 to 64 through the maximum engine.
COPY = {
    "engine": MAXIMUM,
    "outer": 1,
    "middle": 1,
    "inner": 1,
    "steps": 1,
    "destination": 64,
    "lanes": 4,
    "last_lanes": 4,
    "parameter_shared": 1,
    "low": -128,
    "high": 127,
}


def queues(dma: list[bytes], compute: list[bytes]) -> tuple[Queues, np.ndarray]:
    """Both queues, and an arena that holds them."""
    arena = np.zeros(ARENA_BYTES, np.uint8)
    both = Queues(QueueProgram(b"".join(dma), 0), QueueProgram(b"".join(compute), COMPUTE_AT))
    place(arena, both)
    return both, arena


def prepared() -> Machine:
    """A machine with one step list (entry 0) and identity parameters (word 0)."""
    machine = Machine(CONFIG)
    machine.cores[0].memories[LocalMemory.LIST].view(np.uint32)[0] = LIST_CLEAR | LIST_FIRE
    machine.cores[0].memories[LocalMemory.PARAMETER].view(np.uint64)[0] = pack_parameters(
        np.zeros(1, np.int32), np.ones(1, np.float32)
    )[0]
    return machine


@pytest.mark.sampled(55)
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("preset", PRESETS)
def test_compute_follows_the_pseudo_code(preset: str, seed: int) -> None:
    config, rng = PRESETS[preset], np.random.default_rng(seed)
    machine = Machine(config, seed=seed)
    feature = machine.cores[0].memories[LocalMemory.FEATURE].copy()
    outer, middle, inner, steps = (int(n) for n in rng.integers(1, 5, 4))
    engine = find_engine(int(rng.integers(2)))
    limit = config.array.columns if engine is MAC else config.array.lanes
    lanes = int(rng.integers(1, limit + 1))
    command = {
        "engine": engine,
        "outer": outer,
        "middle": middle,
        "inner": inner,
        "tile_inner": int(rng.integers(2)),
        "steps": steps,
        "list": int(rng.integers(9)),
        "source": 300,
        "destination": 4000,
        "weight": int(rng.integers(9)),
        "parameter": int(rng.integers(9)),
        "parameter_shared": int(rng.integers(2)),
        "lanes": lanes,
        "last_lanes": int(rng.integers(1, lanes + 1)),
        "zero_point": int(rng.integers(-128, 128)),
        "low": int(rng.integers(-128, 0)),
        "high": int(rng.integers(0, 128)),
        "table_enable": int(rng.integers(2)),
        "table": int(rng.integers(config.memory.tables)),
        **{f"source_{loop}": int(rng.integers(-50, 50)) for loop in ("outer", "middle", "inner")},
        **{f"destination_{loop}": int(rng.integers(-100, 100)) for loop in ("outer", "middle", "inner")},
    }
    offsets = rng.integers(0, 1000, steps)
    entries = offsets.astype(np.uint32)
    entries[0] |= LIST_CLEAR
    entries[-1] |= LIST_FIRE
    machine.cores[0].memories[LocalMemory.LIST].view(np.uint32)[command["list"] :][:steps] = entries
    weights = (
        machine.cores[0]
        .memories[LocalMemory.WEIGHT]
        .view(np.int8)
        .reshape(-1, config.array.columns, config.array.lanes)
        .astype(int)
    )
    width = config.array.requant_lanes
    parameters = machine.cores[0].memories[LocalMemory.PARAMETER].view(np.uint64).reshape(-1, width)
    table = machine.cores[0].memories[LocalMemory.TABLE][256 * command["table"] :][:256]
    groups = -(-lanes // width)

    expected = feature.copy()
    for i, j, k in itertools.product(range(outer), range(middle), range(inner)):
        tile = k if command["tile_inner"] else i
        last = tile == (inner if command["tile_inner"] else outer) - 1
        count = command["last_lanes"] if last else lanes
        base, place = (
            command[s] + i * command[f"{s}_outer"] + j * command[f"{s}_middle"] + k * command[f"{s}_inner"]
            for s in ("source", "destination")
        )
        words = np.array([feature[base + o : base + o + config.array.lanes].view(np.int8) for o in offsets]).astype(int)
        if engine is MAC:
            used = weights[command["weight"] + tile * steps :][:steps]
            accumulators = np.array([(words * used[:, column]).sum() for column in range(count)])
        else:
            accumulators = words.max(axis=0)[:count]
        for lane in range(count):
            word = command["parameter"] + (0 if command["parameter_shared"] else tile * groups + lane // width)
            code = requantise(
                accumulators[lane : lane + 1].astype(np.int32),
                parameters[word, lane % width][None],
                command["zero_point"],
                command["low"],
                command["high"],
            )
            value = table[int(code[0]) + 128] if command["table_enable"] else code.view(np.uint8)[0]
            expected[place + lane] = value

    program, arena = queues([END.encode()], [COMPUTE.encode(**command), END.encode()])
    machine.run([program], arena)
    np.testing.assert_array_equal(machine.cores[0].memories[LocalMemory.FEATURE], expected)


def run_copies(order: str, dma: list[bytes], compute: list[bytes], seed: int = 0) -> bool:
    """Whether bytes 0 to 3, which are 1 at first, arrive at 128 as 1."""
    machine = prepared()
    machine.cores[0].memories[LocalMemory.FEATURE][:4] = 1
    program, arena = queues([*dma, END.encode()], [*compute, END.encode()])
    machine.cores[0]._rng = np.random.default_rng(seed)
    machine.run([program], arena, order=order)
    return bool((machine.cores[0].memories[LocalMemory.FEATURE][128:132] == 1).all())


def test_a_dependent_command_needs_after() -> None:
    for order, after in itertools.product(ORDERS, (0, 1)):
        second = COMPUTE.encode(**{**COPY, "source": 64, "destination": 128}, after=after)
        assert run_copies(order, [], [COMPUTE.encode(**COPY), second]) or not after
    assert not run_copies(
        "dma-first", [], [COMPUTE.encode(**COPY), COMPUTE.encode(**{**COPY, "source": 64, "destination": 128})]
    )


def test_compute_may_overwrite_what_an_earlier_compute_reads() -> None:
    for order in ORDERS:
        commands = [
            COMPUTE.encode(**{**COPY, "destination": 128}),
            COMPUTE.encode(**{**COPY, "source": 64, "destination": 0}),
        ]
        assert run_copies(order, [], commands)


def test_a_fill_over_a_source_needs_a_token() -> None:
    fill = {"local": 0, "piece_bytes": 4, "rows": 1, "value": 7}
    copy = {**COPY, "destination": 128}
    for order in ORDERS:
        assert run_copies(order, [FILL.encode(**fill, wait=1)], [COMPUTE.encode(**copy, signal=1)])
    assert not run_copies("dma-first", [FILL.encode(**fill)], [COMPUTE.encode(**copy)])
    # The fill begins after the compute command, but while that is still reading.
    assert not run_copies("compute-first", [FILL.encode(**fill)], [COMPUTE.encode(**copy)])


def test_a_store_before_its_data_shows() -> None:
    for order, wait in itertools.product(ORDERS, (0, 1)):
        machine = prepared()
        machine.cores[0].memories[LocalMemory.FEATURE][:4] = 1
        machine.cores[0].memories[LocalMemory.FEATURE][64:68] = 2
        program, arena = queues(
            [STORE.encode(external=1024, local=64, row_bytes=4, rows=1, wait=wait), END.encode()],
            [COMPUTE.encode(**COPY, signal=wait), END.encode()],
        )
        machine.run([program], arena, order=order)
        assert (arena[1024:1028] == 1).all() == bool(wait), order


def test_reading_what_the_same_command_has_written_is_undefined() -> None:
    shifted = {**COPY, "outer": 4, "source_outer": 4, "destination": 4, "destination_outer": 4}
    images = []
    for seed in range(2):
        machine = prepared()
        machine.cores[0].memories[LocalMemory.FEATURE][:] = 1
        machine.cores[0].memories[LocalMemory.FEATURE][:4] = 2
        machine.cores[0]._rng = np.random.default_rng(seed)
        program, arena = queues([END.encode()], [COMPUTE.encode(**shifted), END.encode()])
        machine.run([program], arena)
        images.append(machine.cores[0].memories[LocalMemory.FEATURE].copy())
    assert (images[0][4:8] == 2).all()
    assert (images[0][8:20] != images[1][8:20]).any()


def test_in_place_is_allowed() -> None:
    machine = prepared()
    before = machine.cores[0].memories[LocalMemory.FEATURE].copy()
    program, arena = queues(
        [END.encode()],
        [
            COMPUTE.encode(**{**COPY, "destination": 0, "outer": 9, "source_outer": 4, "destination_outer": 4}),
            END.encode(),
        ],
    )
    machine.run([program], arena)
    np.testing.assert_array_equal(machine.cores[0].memories[LocalMemory.FEATURE], before)


def error_of(
    dma: list[bytes], compute: list[bytes], machine: Machine | None = None
) -> tuple[ErrorCode, Unit, int, int]:
    program, arena = queues(dma, compute)
    with pytest.raises(MachineError) as caught:
        (machine or prepared()).run([program], arena)
    return caught.value.code, caught.value.unit, caught.value.index, caught.value.address


END_ONLY = [END.encode()]


@pytest.mark.parametrize(
    ("field", "value", "code", "unit", "address"),
    [
        ("outer", 0, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, 0),
        ("steps", 0, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, 0),
        ("last_lanes", 5, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, 0),
        ("lanes", 5, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, 0),
        ("list", 1024, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, 0),
        ("table", 4, ErrorCode.ILLEGAL_FIELD, Unit.FETCH, 0),
        ("engine", 4, ErrorCode.ILLEGAL_ENGINE, Unit.COMPUTE_QUEUE, 0),
        ("source", 8192, ErrorCode.ADDRESS_RANGE, Unit.FETCH, 8192),
        ("destination", 8191, ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, 8191),
        ("parameter", 512, ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, 512),
    ],
)
def test_bad_compute_commands_stop_the_run(field: str, value: int, code: ErrorCode, unit: Unit, address: int) -> None:
    commands = [SYNC.encode(), COMPUTE.encode(**{**COPY, field: value}), *END_ONLY]
    assert error_of(END_ONLY, commands) == (code, unit, 1, address)


def test_weights_out_of_range_stop_the_run() -> None:
    words = CONFIG.weight_words
    command = {**COPY, "engine": MAC, "outer": 2, "lanes": 2, "last_lanes": 2, "weight": words - 1}
    assert error_of(END_ONLY, [COMPUTE.encode(**command), *END_ONLY]) == (ErrorCode.ADDRESS_RANGE, Unit.FETCH, 0, words)


def test_bad_dma_commands_stop_the_run() -> None:
    one = {"piece_bytes": 4, "rows": 1}
    assert error_of([FILL.encode(piece_bytes=4), *END_ONLY], END_ONLY) == (ErrorCode.ILLEGAL_FIELD, Unit.FILL, 0, 0)
    assert error_of([FILL.encode(**one, local=8190), *END_ONLY], END_ONLY) == (
        ErrorCode.ADDRESS_RANGE,
        Unit.FILL,
        0,
        8190,
    )
    load = LOAD.encode(**one, row_pieces=1, folds=1, external=ARENA_BYTES)
    assert error_of([load, *END_ONLY], END_ONLY) == (ErrorCode.AXI_DECODE, Unit.LOAD, 0, ARENA_BYTES)


def test_queues_check_opcodes_tokens_and_their_end() -> None:
    assert error_of([COMPUTE.encode(**COPY), *END_ONLY], END_ONLY)[:3] == (ErrorCode.ILLEGAL_OPCODE, Unit.DMA_QUEUE, 0)
    assert error_of(END_ONLY, [bytes(isa.COMMAND_BYTES), *END_ONLY])[:3] == (
        ErrorCode.ILLEGAL_OPCODE,
        Unit.COMPUTE_QUEUE,
        0,
    )
    assert error_of([SYNC.encode()], END_ONLY)[:3] == (ErrorCode.PROGRAM_END, Unit.DMA_QUEUE, 1)
    assert error_of(END_ONLY, [SYNC.encode(), SYNC.encode(wait=1), *END_ONLY])[:3] == (
        ErrorCode.WATCHDOG,
        Unit.COMPUTE_QUEUE,
        1,
    )
    assert error_of([SYNC.encode(signal=1), *END_ONLY], END_ONLY)[:2] == (ErrorCode.TOKENS_LEFT, Unit.COMPUTE_QUEUE)


def test_the_end_of_a_queue_gives_tokens() -> None:
    machine = prepared()
    both, arena = queues([END.encode(signal=2)], [SYNC.encode(wait=2), *END_ONLY])
    machine.run([both], arena)
    assert error_of([END.encode(signal=2)], END_ONLY)[:2] == (ErrorCode.TOKENS_LEFT, Unit.COMPUTE_QUEUE)


def test_an_error_says_where() -> None:
    both, arena = queues(END_ONLY, [bytes(isa.COMMAND_BYTES), *END_ONLY])
    with pytest.raises(MachineError, match=r"^core 0, COMPUTE_QUEUE: ILLEGAL_OPCODE in command 0 at address 0x0$"):
        prepared().run([both], arena)


def test_queues_refuse_bits_that_mean_nothing() -> None:
    for bit in (5, 511):
        command = (int.from_bytes(SYNC.encode(), "little") | 1 << bit).to_bytes(isa.COMMAND_BYTES, "little")
        assert error_of(END_ONLY, [command, *END_ONLY])[:3] == (ErrorCode.ILLEGAL_FIELD, Unit.COMPUTE_QUEUE, 0)


def test_a_list_that_frames_no_window_hangs() -> None:
    machine = prepared()
    machine.cores[0].memories[LocalMemory.LIST].view(np.uint32)[0] = LIST_CLEAR
    assert error_of(END_ONLY, [COMPUTE.encode(**COPY), *END_ONLY], machine)[0] is ErrorCode.WATCHDOG


def test_unknown_order() -> None:
    program, arena = queues(END_ONLY, END_ONLY)
    with pytest.raises(
        ValueError, match=f"^{re.escape('order must be one of dma-first, compute-first, random, not sorted')}$"
    ):
        prepared().run([program], arena, order="sorted")


@pytest.mark.parametrize("field", ["further", "destination_further"])
def test_queues_refuse_fields_that_are_not_built(field: str) -> None:
    command = DEPTHWISE.format.encode(engine=DEPTHWISE, **{field: 1})
    assert error_of(END_ONLY, [command, *END_ONLY])[:3] == (ErrorCode.ILLEGAL_FIELD, Unit.COMPUTE_QUEUE, 0)


# Tensors in memory: codes and binary values to bytes and back.


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 300])
def test_binary_values_are_packed_pixel_by_pixel(channels: int) -> None:
    codes = np.random.default_rng(channels).choice([-1, 1], (2, 3, channels)).astype(np.int8)
    image = tensor_image(codes, 1)
    assert image.shape == (2, 3, -(-channels // 8))
    for y, x, channel in np.ndindex(codes.shape):
        assert (image[y, x, channel // 8] >> channel % 8 & 1) == (codes[y, x, channel] == 1)
    np.testing.assert_array_equal(tensor_codes(image.reshape(-1), codes.shape, 1), codes)


def test_codes_are_their_bytes() -> None:
    codes = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    image = tensor_image(codes, 8)
    assert image.tobytes() == codes.tobytes()
    np.testing.assert_array_equal(tensor_codes(image.reshape(-1), codes.shape, 8), codes)
