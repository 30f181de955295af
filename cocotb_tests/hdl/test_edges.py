"""Every limit of every command: at its last legal value hardware and golden machine leave the same bytes, at the first
illegal one they stop with the same error."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest

from cocotb_tests.support.programs import Case, arena_of, cases
from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.machine import ORDERS, Machine
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Queues
from lutterfly.golden.registers import REGISTERS
from lutterfly.golden.units import ErrorCode, Queue, Unit
from lutterfly.host.simulation.simulator import Fault, VerilatorTransport

WATCHDOG = 3000


@dataclass
class Outcome:
    """How a run ended: an error (code, unit, index, address) or None, and the memories then."""

    error: tuple[ErrorCode, Unit, int, int] | None
    arena: np.ndarray
    feature: np.ndarray


def on_the_machine(case: Case, config: Config, order: str) -> Outcome:
    machine, (arena, prologue, body) = Machine(config), arena_of(case, config)
    machine.run([prologue], arena)
    error = None
    try:
        machine.run([body], arena, order=order)
    except MachineError as stopped:
        error = (stopped.code, stopped.unit, stopped.index, stopped.address)
    return Outcome(error, arena, machine.cores[0].memories[LocalMemory.FEATURE])


class Core:
    """The simulated core, with a memory that ends where the arena does."""

    def __init__(self, config: Config):
        self.config = config
        self.transport = VerilatorTransport(config)

    def __call__(self, case: Case) -> Outcome:
        simulator, base = self.transport.simulator, self.transport.arena_base
        arena, prologue, body = arena_of(case, self.config)
        self.transport.write_memory(base, arena.tobytes())
        simulator.clear_faults()
        simulator.add_fault(base + len(arena), base + (64 << 20), Fault.DECODE)
        self.write("CONTROL", registers.CONTROL_RESET)
        simulator.run(1000)
        assert not self.run(prologue)
        error = self.run(body)
        feature = simulator.read_feature(0, self.config.memory.feature_bytes)
        return Outcome(
            error,
            np.frombuffer(self.transport.read_memory(base, len(arena)), np.uint8),
            np.frombuffer(feature, np.uint8),
        )

    def run(self, queues: Queues) -> tuple[ErrorCode, Unit, int, int] | None:
        values = {
            "EXTERNAL_BASE": self.transport.arena_base,
            "WATCHDOG": WATCHDOG,
            "INTERRUPT": 1,
            "INTERRUPT_ENABLE": 1,
        }
        for queue in Queue:
            values[f"{queue.name}_PROGRAM"] = queues[queue].address
            values[f"{queue.name}_COMMANDS"] = len(queues[queue])
        for name, value in values.items():
            self.write(name, value)
        self.write("CONTROL", registers.CONTROL_START)
        assert self.transport.wait_for_interrupt(200_000)
        if self.read("STATUS") == registers.STATUS_DONE:
            return None
        word = self.read("ERROR")
        return ErrorCode(word & 0xFF), Unit(word >> 8 & 0xFF), word >> 16, self.read("ERROR_ADDRESS")

    def write(self, name: str, value: int) -> None:
        self.transport.write_register(REGISTERS[name].address, value)

    def read(self, name: str) -> int:
        return self.transport.read_register(REGISTERS[name].address)


CASES = {name: {case.name: case for case in cases(PRESETS[name])} for name in ("tiny", "ecp5-85k")}
core = functools.cache(Core)


def check(preset: str, name: str) -> None:
    case, config = CASES[preset][name], PRESETS[preset]
    found = core(config)(case)
    for order in ORDERS:
        expected = on_the_machine(case, config, order)
        assert (expected.error is None) == case.legal
        assert found.error == expected.error
        if case.legal:
            np.testing.assert_array_equal(found.arena, expected.arena)
            np.testing.assert_array_equal(found.feature, expected.feature)


@pytest.mark.parametrize("name", CASES["tiny"])
def test_limits(name: str) -> None:
    check("tiny", name)


@pytest.mark.regress
@pytest.mark.parametrize("name", CASES["ecp5-85k"])
def test_limits_on_the_default_core(name: str) -> None:
    check("ecp5-85k", name)
