"""Faults while the shipped driver runs the simulated core: each ends in bounded time in an exception that names it, and
after a soft reset the next inference is right."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.programs import with_body, with_commands
from lutterfly.examples import digits
from lutterfly.golden import isa
from lutterfly.golden.isa import COMMAND_BYTES, Opcode
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.units import ErrorCode, Queue, Unit
from lutterfly.host.compiler import compile_model
from lutterfly.host.driver.driver import AcceleratorError, Driver
from lutterfly.host.simulation.simulator import Fault, MemorySettings, VerilatorTransport

CONFIG = PRESETS["tiny"]
WATCHDOG = 3000


class Bench:
    """A driver with the digits' program loaded, and what one input gives."""

    def __init__(self, program: Program | None = None):
        self.good = compile_model(digits.model_path("qop").read_bytes(), CONFIG)
        self.transport = VerilatorTransport(CONFIG)
        self.simulator = self.transport.simulator
        self.driver = Driver(self.transport, CONFIG, watchdog_cycles=WATCHDOG)
        self.driver.load(program or self.good)
        shape = self.good.inputs[0].onnx_shape
        self.input = [np.random.default_rng(5).integers(-128, 128, shape, dtype=np.int8)]

    def expected(self) -> np.ndarray:
        transport = VerilatorTransport(CONFIG)
        driver = Driver(transport, CONFIG)
        driver.load(self.good)
        return driver.infer(self.input)[0]

    def fails(self) -> AcceleratorError:
        before = self.simulator.cycle
        with pytest.raises(AcceleratorError) as caught:
            self.driver.infer(self.input)
        assert self.simulator.cycle - before < 50 * WATCHDOG
        return caught.value

    def recovers(self) -> None:
        """The next inferences are right, and what a late answer would overwrite stays."""
        if self.driver._program is not self.good:
            self.driver.load(self.good)
        for _ in range(2):
            np.testing.assert_array_equal(self.driver.infer(self.input)[0], self.expected())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("fault", "code"), [(Fault.SLAVE, ErrorCode.AXI_SLAVE), (Fault.DECODE, ErrorCode.AXI_DECODE)])
@pytest.mark.parametrize("side", ["input", "output"])
def test_bus_errors(fault: Fault, code: ErrorCode, side: str) -> None:
    bench = Bench()
    port = (bench.good.inputs if side == "input" else bench.good.outputs)[0]
    address = bench.transport.arena_base + port.addresses[0]
    bench.simulator.add_fault(address, address + port.size_bytes, fault)
    error = bench.fails()
    assert (error.code, error.unit) == (code, Unit.LOAD if side == "input" else Unit.STORE)
    opcode = "LOAD" if side == "input" else "STORE"
    where = f"{code.name} in {error.unit.name} at address {error.address:#x}"
    assert f"{where}, command {error.index} ({opcode}) of the body's DMA queue" in str(error)
    bench.simulator.clear_faults()
    bench.recovers()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("settings", [{"accept": False}, {"answer": False}])
@pytest.mark.parametrize("late", ["before the reset", "after the reset", "in the next run"])
def test_a_memory_that_does_not_answer(settings: dict[str, bool], late: str) -> None:
    bench = Bench()
    bench.simulator.configure(MemorySettings(**settings))
    error = bench.fails()
    assert error.code is ErrorCode.WATCHDOG
    assert error.unit in (Unit.LOAD, Unit.PREFETCH)
    if late == "before the reset":
        bench.simulator.configure(MemorySettings())
        bench.simulator.run(500)
    elif late == "after the reset":
        bench.driver.reset()
    bench.simulator.configure(MemorySettings(read_latency=200))
    bench.recovers()


@pytest.mark.parametrize("settings", [{"accept": False}, {"answer": False}])
def test_a_memory_that_hangs_through_many_resets(settings: dict[str, bool]) -> None:
    """More of them than there are epochs."""
    bench = Bench()
    bench.simulator.configure(MemorySettings(**settings))
    for _ in range(10):
        assert bench.fails().code is ErrorCode.WATCHDOG
    bench.simulator.configure(MemorySettings())
    bench.recovers()


def _changed(program: Program, queue: Queue, opcode: Opcode, fields: dict[str, int]) -> Program:
    """``program`` with fields changed in the first command of this opcode; a field ``opcode`` replaces the code."""
    data = bytearray(program.cores[0].body[queue].commands)
    at = next(at for at in range(0, len(data), COMMAND_BYTES) if data[at] & 15 == opcode)
    if "opcode" in fields:
        data[at] = data[at] & 0xF0 | fields["opcode"]
    else:
        fmt = isa.FORMATS[opcode]
        data[at : at + COMMAND_BYTES] = fmt.encode(**(fmt.decode(bytes(data[at : at + COMMAND_BYTES])) | fields))
    return with_body(program, with_commands(program.cores[0].body, queue, bytes(data)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("queue", "opcode", "fields", "code", "unit"),
    [
        (Queue.DMA, Opcode.LOAD, {"opcode": 9}, ErrorCode.ILLEGAL_OPCODE, Unit.DMA_QUEUE),
        (Queue.DMA, Opcode.LOAD, {"opcode": 6}, ErrorCode.ILLEGAL_OPCODE, Unit.DMA_QUEUE),
        (Queue.DMA, Opcode.LOAD, {"rows": 0}, ErrorCode.ILLEGAL_FIELD, Unit.LOAD),
        (Queue.DMA, Opcode.LOAD, {"local": CONFIG.memory.feature_bytes - 5}, ErrorCode.ADDRESS_RANGE, Unit.LOAD),
        (Queue.DMA, Opcode.FILL, {"local": CONFIG.memory.feature_bytes}, ErrorCode.ADDRESS_RANGE, Unit.FILL),
        (Queue.DMA, Opcode.STORE, {"local": 1 << 20}, ErrorCode.ADDRESS_RANGE, Unit.STORE),
        (Queue.COMPUTE, Opcode.COMPUTE, {"opcode": 3}, ErrorCode.ILLEGAL_OPCODE, Unit.COMPUTE_QUEUE),
        (Queue.COMPUTE, Opcode.COMPUTE, {"engine": 8}, ErrorCode.ILLEGAL_ENGINE, Unit.COMPUTE_QUEUE),
        (Queue.COMPUTE, Opcode.COMPUTE, {"steps": 0}, ErrorCode.ILLEGAL_FIELD, Unit.FETCH),
        (Queue.COMPUTE, Opcode.COMPUTE, {"source": 1 << 22}, ErrorCode.ADDRESS_RANGE, Unit.FETCH),
        (Queue.COMPUTE, Opcode.COMPUTE, {"weight": (1 << 20) - 1}, ErrorCode.ADDRESS_RANGE, Unit.FETCH),
        (Queue.COMPUTE, Opcode.COMPUTE, {"destination": 1 << 23}, ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK),
        (Queue.COMPUTE, Opcode.COMPUTE, {"parameter": 60_000}, ErrorCode.ADDRESS_RANGE, Unit.WRITE_BACK),
    ],
)
def test_bad_commands(queue: Queue, opcode: Opcode, fields: dict[str, int], code: ErrorCode, unit: Unit) -> None:
    good = compile_model(digits.model_path("qop").read_bytes(), CONFIG)
    bench = Bench(_changed(good, queue, opcode, fields))
    error = bench.fails()
    assert (error.code, error.unit) == (code, unit)
    data = good.cores[0].body[queue].commands
    assert data[error.index * COMMAND_BYTES] & 15 == opcode
    bench.recovers()


def test_queues_that_wait_for_each_other() -> None:
    good = compile_model(digits.model_path("qop").read_bytes(), CONFIG)
    bench = Bench(_changed(good, Queue.COMPUTE, Opcode.COMPUTE, {"wait": 100}))
    error = bench.fails()
    assert error.code is ErrorCode.WATCHDOG
    assert error.unit in (Unit.DMA_QUEUE, Unit.COMPUTE_QUEUE)
    bench.recovers()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cycles", [5, 60, 130, 2000, 50_000])
def test_a_reset_in_the_middle(cycles: int) -> None:
    bench = Bench()
    bench.driver.begin(bench.input)
    bench.simulator.run(cycles)
    bench.driver.reset()
    bench.recovers()
