"""The driver over the golden machine: programs, inferences, refusals, errors and resets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from cocotb_tests.support.transports.c_driver import Idle
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden import registers
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.program.stages import stages
from lutterfly.golden.units import ErrorCode, Queue, Unit
from lutterfly.host.driver.driver import AcceleratorError, Driver, HardwareError
from lutterfly.host.session.loading import load_program

CONFIG = PRESETS["ecp5-85k"]


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(digits.model_path("qop"), CONFIG)


@pytest.fixture
def transport() -> GoldenTransport:
    return GoldenTransport(CONFIG)


def codes(seed: int) -> list[np.ndarray]:
    return [np.random.default_rng(seed).integers(-128, 128, (1, 1, 8, 8), dtype=np.int8)]


def fresh_answer(program: Program, seed: int) -> list[np.ndarray]:
    driver = Driver(GoldenTransport(CONFIG), CONFIG)
    driver.load(program)
    return driver.infer(codes(seed))


def test_inferences_back_to_back_load_the_weights_once(program: Program, transport: GoldenTransport) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    for seed in (0, 1):
        np.testing.assert_array_equal(driver.infer(codes(seed)), fresh_answer(program, seed))
    assert transport.starts == [program.cores[0].prologue.dma.address, *2 * [program.cores[0].body.dma.address]]
    assert driver.counters()["cycles"] == 1000


def test_each_core_of_a_cluster_has_its_own_counters() -> None:
    config = dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=2))
    program, transport = load_program(digits.model_path("qop"), config), GoldenTransport(config)
    driver = Driver(transport, config)
    driver.load(program)
    transport.values |= {"BARRIER_STALLED": 5, "BARRIER_STALLED_1": 7, "COMPUTE_DONE_1": 3}
    driver.infer([np.concatenate([*codes(0), *codes(1)])])
    cores = driver.core_counters()
    assert [core["cycles"] for core in cores] == [1000, 999]
    assert [core["barrier_stalled"] for core in cores] == [5, 7]
    assert cores[1]["compute_done"] == 3
    assert driver.counters()["barrier_stalled"] == 12


@pytest.mark.parametrize(
    ("register", "message"),
    [
        ("ID", "^ID must be 0x4654554c, not 0x4654554d; check the register port's address$"),
        ("VERSION", "^VERSION must be 0x00000001, not 0x00000002; use the release"),
        ("CONFIG_HASH", r"^CONFIG_HASH must be .*; name the configuration that the hardware was generated from$"),
    ],
)
def test_refuses_other_hardware(transport: GoldenTransport, register: str, message: str) -> None:
    transport.values[register] += 1
    with pytest.raises(HardwareError, match=message):
        Driver(transport, CONFIG)


def test_refuses_a_program_for_another_configuration(program: Program, transport: GoldenTransport) -> None:
    driver = Driver(transport, CONFIG)
    other = dataclasses.replace(program, config_hash=1, config_name="other")
    with pytest.raises(
        ValueError,
        match=r"^program must be for the configuration of this hardware \(0x.*\), "
        r"not for other \(0x00000001\); compile",
    ):
        driver.load(other)
    assert not transport.starts


def test_refuses_a_program_of_which_an_inference_is_larger_than_the_arena(program: Program) -> None:
    transport = GoldenTransport(CONFIG, arena_bytes=program.body_bytes - 1)
    with pytest.raises(ValueError, match=r"^program must fit the arena of .* bytes, not need .* for an inference$"):
        Driver(transport, CONFIG).load(program)
    assert not transport.starts


@pytest.mark.sampled(3)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99, 1.0])
def test_an_arena_smaller_than_the_program_gets_the_constants_in_windows(program: Program, share: float) -> None:
    size = program.body_bytes + int(share * (program.arena_bytes - program.body_bytes))
    transport = GoldenTransport(CONFIG, arena_bytes=size)
    driver, count = Driver(transport, CONFIG), len(stages(program, size))
    assert count == 1 if share > 0.9 else count > 1
    driver.load(program)
    for seed in (0, 1):
        np.testing.assert_array_equal(driver.infer(codes(seed)), fresh_answer(program, seed))
    assert len(transport.starts) == count + 2
    driver.reset()
    np.testing.assert_array_equal(driver.infer(codes(2)), fresh_answer(program, 2))
    assert len(transport.starts) == 2 * count + 3


def test_the_commands_of_each_window_are_fetched_anew(program: Program) -> None:
    """Hardware keeps commands that it has fetched until a register of theirs is written, even with the same value."""
    idle = Idle(program)
    idle.arena_bytes = program.body_bytes
    Driver(idle, CONFIG).load(program)
    runs: list[set[str]] = [set()]
    for name, value in idle.writes:
        if (name, value) == ("CONTROL", registers.CONTROL_START):
            runs.append(set())
        runs[-1].add(name)
    # What follows the last start belongs to no run.
    before = runs[:-1]
    assert len(before) == len(stages(program, idle.arena_bytes)) > 1
    assert all(f"{queue.name}_PROGRAM" in written for written in before for queue in Queue)


def test_an_error_in_a_window_names_the_prologue(program: Program) -> None:
    transport = GoldenTransport(CONFIG, arena_bytes=program.body_bytes)
    transport.next_error = MachineError(ErrorCode.AXI_SLAVE, Unit.LOAD, 0, 64)
    driver = Driver(transport, CONFIG)
    message = r"^AXI_SLAVE in LOAD at address 0x40, command 0 \(LOAD\) of the prologue's DMA queue; check the external"
    with pytest.raises(AcceleratorError, match=message):
        driver.load(program)
    np.testing.assert_array_equal(driver.infer(codes(3)), fresh_answer(program, 3))


@pytest.mark.parametrize(
    ("inputs", "kind", "message"),
    [
        ([], ValueError, "^inputs must be 1 arrays, not 0$"),
        ([np.zeros((1, 1, 8, 8), np.float32)], TypeError, "must be an array of int8, not float32$"),
        ([np.zeros((1, 8, 8, 1), np.int8)], ValueError, r"must have the shape \[1, 1, 8, 8\], not \[1, 8, 8, 1\]$"),
    ],
)
def test_refuses_inputs_before_it_writes_any(
    program: Program, transport: GoldenTransport, inputs: list[np.ndarray], kind: type[Exception], message: str
) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    before = transport.read_memory(transport.arena_base, program.arena_bytes)
    with pytest.raises(kind, match=message):
        driver.infer(inputs)
    assert transport.read_memory(transport.arena_base, program.arena_bytes) == before
    assert len(transport.starts) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            MachineError(ErrorCode.AXI_DECODE, Unit.LOAD, 0, 0x1234),
            r"^AXI_DECODE in LOAD at address 0x1234, command 0 \(\w+\) of the body's DMA queue; check that the arena",
        ),
        (
            MachineError(ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK, 1, 0x20000),
            r"^ADDRESS_RANGE in WRITE_BACK at address 0x20000, command 1 \(COMPUTE\) of .* queue, layer \w+; compile",
        ),
        (MachineError(ErrorCode.WATCHDOG, Unit.PREFETCH, 3), r"^WATCHDOG in PREFETCH, command 3 of the body; check"),
        (MachineError(ErrorCode.WATCHDOG, Unit.FETCH, 3), r"^WATCHDOG in FETCH, command 3 .*; a result never came: "),
    ],
)
def test_an_error_is_named_and_the_next_inference_is_right(
    program: Program, transport: GoldenTransport, error: MachineError, message: str
) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    transport.next_error = error
    with pytest.raises(AcceleratorError, match=message) as caught:
        driver.infer(codes(2))
    assert (caught.value.code, caught.value.unit, caught.value.index) == (error.code, error.unit, error.index)
    np.testing.assert_array_equal(driver.infer(codes(3)), fresh_answer(program, 3))


def test_inferences_of_a_batch_are_those_of_each_alone(program: Program, transport: GoldenTransport) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    found = list(driver.infer_all(map(codes, range(3))))
    assert [[array.tobytes() for array in outputs] for outputs in found] == [
        [array.tobytes() for array in fresh_answer(program, seed)] for seed in range(3)
    ]
    assert list(driver.infer_all([])) == []


@pytest.mark.parametrize("cause", ["error", "input", "end"])
def test_a_batch_that_ends_in_its_middle_loses_nothing_before(
    program: Program, transport: GoldenTransport, cause: str
) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)

    def inputs() -> Iterator[list[np.ndarray]]:
        yield codes(0)
        yield codes(1)
        if cause == "error":
            transport.next_error = MachineError(ErrorCode.WATCHDOG, Unit.PREFETCH, 3)
        yield codes(2) if cause != "input" else []
        yield codes(3)

    found = driver.infer_all(inputs())
    for seed in range(1 if cause == "input" else 2):
        np.testing.assert_array_equal(next(found), fresh_answer(program, seed))
    if cause == "error":
        with pytest.raises(AcceleratorError, match=r"^WATCHDOG in PREFETCH, command 3 of the body; check"):
            next(found)
    elif cause == "input":
        with pytest.raises(ValueError, match=r"^inputs must be 1 arrays, not 0$"):
            next(found)
    found.close()
    starts = len(transport.starts)
    np.testing.assert_array_equal(driver.infer(codes(4)), fresh_answer(program, 4))
    # Only an error needs the prologue again.
    assert len(transport.starts) == starts + (2 if cause == "error" else 1)


def test_after_a_reset_the_prologue_runs_again(program: Program, transport: GoldenTransport) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    driver.begin(codes(0))
    driver.reset()
    np.testing.assert_array_equal(driver.infer(codes(1)), fresh_answer(program, 1))
    prologue, body = program.cores[0].prologue.dma.address, program.cores[0].body.dma.address
    assert transport.starts == [prologue, body, prologue, body]


def test_a_run_that_never_ends(program: Program, transport: GoldenTransport) -> None:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    transport.hangs = True
    with pytest.raises(
        AcceleratorError,
        match=r"^a run must end within 2000000 cycles, and does not; check that the external memory answers$",
    ):
        driver.infer(codes(0))
    with pytest.raises(AcceleratorError, match=r"^a soft reset must end within 5120 cycles, and does not; reset the"):
        driver.infer(codes(0))
    transport.hangs = False
    np.testing.assert_array_equal(driver.infer(codes(1)), fresh_answer(program, 1))


def test_needs_a_program(transport: GoldenTransport) -> None:
    with pytest.raises(RuntimeError, match=r"^a program must be loaded first; call load$"):
        Driver(transport, CONFIG).infer(codes(0))
