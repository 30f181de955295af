"""The accelerator in a comparison: what can be seen of an inference, on a simulated core and on a board."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ...golden.config import Config
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.machine.images import Part, of_shares
from ...golden.program.program import CoreProgram, Program, WrittenTensor
from ..driver.driver import Driver
from ..driver.transport import Transport
from ..graph import Int8
from ..simulation.settings import EventKind, Outcome
from ..simulation.verilator_transport import VerilatorTransport
from .verification import LayerCycles

#: Cycles in which a command must complete, and cycles from its completion to the landing of its last result.
_COMMAND_CYCLES, _LANDING_CYCLES = 10_000_000, 8


class Watched(ABC):
    """An accelerator of which an inference is watched: here, as a board lets it, which shows its arena alone.

    Parameters
    ----------
    program, config
        What it runs.
    transport : Transport

    Attributes
    ----------
    outputs : list of arrays
        Of the last inference, those of the program's output ports.
    cycles : int
        Likewise.
    """

    def __init__(self, program: Program, config: Config, transport: Transport):
        self.program = program
        self.config = config
        self.transport = transport
        self.outputs: list[np.ndarray] = []
        self.cycles = 0

    def run(self, driver: Driver, inputs: list[np.ndarray]) -> list[dict[str, Int8]]:
        """Run an inference; every tensor that is seen, for each share of the samples."""
        driver.begin(inputs)
        parts = self._watch()
        self.outputs = driver.finish()
        self.cycles = driver.counters()["cycles"]
        for own, core in zip(parts, self.program.cores, strict=True):
            for tensor in core.spilled:
                data = self.transport.read_memory(self.transport.arena_base + tensor.address, tensor.size_bytes)
                own.append(Part.spilled(tensor, np.frombuffer(data, np.uint8)))
        return of_shares(parts, self.program.shares)

    @abstractmethod
    def _watch(self) -> list[list[Part]]:
        """What each core writes into its feature memory, as far as it is seen."""

    def measure(self) -> list[LayerCycles]:
        """The cycles of the last inference, as a whole at least."""
        return [LayerCycles("inference", self.program.predicted_cycles, self.cycles, self.cycles)]


class WatchedBoard(Watched):
    """A board: its feature memory is not seen."""

    def _watch(self) -> list[list[Part]]:
        return [[] for _ in self.program.cores]


class WatchedSimulator(Watched):
    """A simulated core: all of it is seen, cycle by cycle."""

    transport: VerilatorTransport

    def run(self, driver: Driver, inputs: list[np.ndarray]) -> list[dict[str, Int8]]:
        """Every written tensor, read from the feature memory when its last command has completed, or from the arena."""
        self.transport.simulator.clear_events()
        return super().run(driver, inputs)

    def _watch(self) -> list[list[Part]]:
        """Read what each core has written, as soon as it is there."""
        simulator, cores = self.transport.simulator, self.program.cores
        self._started = simulator.cycle
        parts: list[list[Part]] = [[] for _ in cores]
        # For each core by how many COMPUTE commands have completed then.
        due = [self._due(core) for core in cores]
        while any(due):
            counts = [min(own, default=0) for own in due]
            outcome = simulator.run(_COMMAND_CYCLES, until_interrupt=True, until_compute_done=counts)
            if outcome is not Outcome.COMPUTE_DONE:
                break
            # What completes meanwhile has not landed then.
            done = [simulator.compute_done(number) for number in range(len(cores))]
            simulator.run(_LANDING_CYCLES)
            for number, own in enumerate(due):
                for count in [count for count in own if count <= done[number]]:
                    data = simulator.read_feature(0, self.config.memory.feature_bytes, core=number)
                    feature = np.frombuffer(data, np.uint8)
                    parts[number] += [Part.written(tensor, feature) for tensor in own.pop(count)]
        return parts

    def _due(self, core: CoreProgram) -> dict[int, list[WrittenTensor]]:
        """What a core writes, by how many COMPUTE commands have completed when it is there."""
        opcodes, due = _compute_opcodes(core), dict[int, list[WrittenTensor]]()
        for tensor in core.written:
            count = sum(opcode is Opcode.COMPUTE for opcode in opcodes[: tensor.command + 1])
            due.setdefault(count, []).append(tensor)
        return due

    def measure(self) -> list[LayerCycles]:
        """Layer by layer, from the trace of the last inference, and all of it."""
        cores, layers = self.program.cores, list[LayerCycles]()
        for number, core in enumerate(cores):
            events = self.transport.simulator.events(core=number)
            issues = iter([int(cycle) for cycle, kind in events if kind == EventKind.ISSUE_LAST])
            opcodes = _compute_opcodes(core)
            last_issue = {index: next(issues) for index, opcode in enumerate(opcodes) if opcode is Opcode.COMPUTE}
            before, of_core = self._started, f" (core {number})" if len(cores) > 1 else ""
            for layer in core.layers:
                now = last_issue[layer.commands[-1]]
                measured = now - before
                whole = measured if len(cores) == 1 else self.cycles
                layers.append(LayerCycles(f"{layer.name}{of_core}", layer.cycles, measured, whole))
                before = now
        return [*layers, *super().measure()]


def _compute_opcodes(core: CoreProgram) -> list[Opcode]:
    commands = core.body.compute.commands
    return [Opcode(commands[start] & 15) for start in range(0, len(commands), COMMAND_BYTES)]
