"""Comparison: run one inference in all implementations, and find the bytes and cycles that differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...golden.config import Config
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.machine import images, machine
from ...golden.machine.images import TensorPart, of_shares
from ...golden.program.program import CoreProgram, Program, WrittenTensor
from ..driver import ports
from ..driver.driver import Driver
from ..driver.transport import Transport
from ..graph import Graph, Int8, View, evaluate
from ..model.arrays import contents
from ..model.reference import Reference
from ..simulation.simulator import EventKind, StopReason, VerilatorTransport
from .loading import LoadedProgram
from .session import InferenceSession, single_samples

# Results of a verification.

#: A prediction is right within this part of the measured cycles, or this many cycles, whichever is more.
TOLERANCE, TOLERANCE_CYCLES = 0.02, 16


@dataclass
class TensorComparison:
    """One quantised tensor, over all samples.

    Attributes
    ----------
    name : str
        Name of the ONNX tensor.
    bytes : int
        Bytes that were compared in each of the three.
    golden, machine, rtl : int or None
        Bytes that differ from ONNX Runtime's (or from the golden functions', where ONNX Runtime is not a reference);
        None where the tensor is not observable: only the golden functions have fused tensors.
    """

    name: str
    bytes: int = 0
    golden: int | None = None
    machine: int | None = None
    rtl: int | None = None

    @property
    def mismatched(self) -> int:
        """All bytes that differ."""
        return sum(count or 0 for count in (self.golden, self.machine, self.rtl))


@dataclass(frozen=True, slots=True)
class LayerCycles:
    """Predicted and measured cycles of one layer, from the last issue of the one before to its own.

    ``whole`` is the base of the tolerance: the layer's measured cycles, or those of the inference where cores wait for
    one another in changing layers.
    """

    name: str
    predicted: int
    measured: int
    whole: int

    @property
    def is_right(self) -> bool:
        """Whether the prediction is within the tolerance."""
        return abs(self.predicted - self.measured) <= max(TOLERANCE_CYCLES, TOLERANCE * self.whole)


@dataclass
class Verification:
    """The results of a verification.

    Attributes
    ----------
    loaded : LoadedProgram
        The program and its models.
    samples : int
    tensors : list of TensorComparison
        In order of execution, the model's outputs last.
    layers : list of LayerCycles
        The layers; empty where the memory is not the ideal one.
    cycles : int
        Cycles of one inference, from start to done.
    reference : str
        The reason why ONNX Runtime on this processor is not a reference; empty if it is one.
    unseen : list of str
        Tensors that are compared with the golden functions although ONNX Runtime is a reference, because its value may
        not be exact, see :class:`.reference.Reference`; outputs are never among them.
    random : list of str
        Tensors that depend on random numbers: they are compared with the golden functions, and outputs are not
        compared.
    """

    loaded: LoadedProgram
    samples: int
    tensors: list[TensorComparison] = field(default_factory=list)
    layers: list[LayerCycles] = field(default_factory=list)
    cycles: int = 0
    reference: str = ""
    unseen: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

    @property
    def program(self) -> Program:
        """The program."""
        return self.loaded.program

    @property
    def bytes(self) -> int:
        """All comparisons of bytes."""
        return sum(
            tensor.bytes * sum(count is not None for count in (tensor.golden, tensor.machine, tensor.rtl))
            for tensor in self.tensors
        )

    @property
    def mismatched_bytes(self) -> int:
        """Comparisons that failed."""
        return sum(tensor.mismatched for tensor in self.tensors)

    @property
    def bytes_right(self) -> bool:
        """Whether all bytes are equal."""
        return not self.mismatched_bytes

    @property
    def cycles_right(self) -> bool:
        """Whether all predictions of cycles are within the tolerance."""
        return all(layer.is_right for layer in self.layers)

    @property
    def is_right(self) -> bool:
        """Whether bytes and cycles are right."""
        return self.bytes_right and self.cycles_right

    @property
    def verdict(self) -> str:
        """The verdict on both, with the places that are not right."""
        wrong = [tensor.name for tensor in self.tensors if tensor.mismatched]
        off = [layer.name for layer in self.layers if not layer.is_right]
        found = [f"bytes differ in {', '.join(wrong)}" if wrong else "all bytes are right"]
        if off:
            limit = f"{TOLERANCE:.0%} and {TOLERANCE_CYCLES} cycles"
            found.append(f"the predicted cycles are off by more than {limit} in {', '.join(off)}")
        elif self.layers:
            found.append("the cycles are as predicted")
        if self.random:
            found.append(f"ONNX Runtime's are no reference where random numbers decide: {', '.join(self.random)}")
        return "; ".join(found)


# Observation of an inference on a simulated core and on a board.

#: The time-out of a command, and the cycles from its completion to the write-back of its last result.
_COMMAND_CYCLES, _LANDING_CYCLES = 10_000_000, 8


class Watched(ABC):
    """An accelerator whose inferences are observed, by default like a board, of which only the arena is visible.

    Parameters
    ----------
    program, config
        The program to run.
    transport : Transport

    Attributes
    ----------
    outputs : list of arrays
        The arrays of the program's output ports in the last inference.
    cycles : int
        Cycles of the last inference.
    """

    def __init__(self, program: Program, config: Config, transport: Transport):
        self.program = program
        self.config = config
        self.transport = transport
        self.outputs: list[np.ndarray] = []
        self.cycles = 0

    def run(self, driver: Driver, inputs: list[np.ndarray]) -> list[dict[str, Int8]]:
        """Run an inference; return every observed tensor, for each share of the samples."""
        driver.begin(inputs)
        parts = self._watch()
        self.outputs = driver.finish()
        self.cycles = driver.counters()["cycles"]
        for own, core in zip(parts, self.program.cores, strict=True):
            for tensor in core.spilled:
                data = self.transport.read_memory(self.transport.arena_base + tensor.address, tensor.size_bytes)
                own.append(TensorPart.spilled(tensor, np.frombuffer(data, np.uint8)))
        return of_shares(parts, self.program.shares)

    @abstractmethod
    def _watch(self) -> list[list[TensorPart]]:
        """Return the tensors that each core writes into its feature memory, as far as they are visible."""

    def measure(self) -> list[LayerCycles]:
        """Measure the cycles of the last inference, at least as a whole."""
        return [LayerCycles("inference", self.program.predicted_cycles, self.cycles, self.cycles)]


class WatchedBoard(Watched):
    """A board, whose feature memory is not visible."""

    def _watch(self) -> list[list[TensorPart]]:
        return [[] for _ in self.program.cores]


class WatchedSimulator(Watched):
    """A simulated core, all of which is visible in every cycle."""

    transport: VerilatorTransport

    def run(self, driver: Driver, inputs: list[np.ndarray]) -> list[dict[str, Int8]]:
        """Run an inference; read tensors from the feature memory when their last command has completed, or from the
        arena."""
        self.transport.simulator.clear_events()
        return super().run(driver, inputs)

    def _watch(self) -> list[list[TensorPart]]:
        """Read the tensors that each core has written, as soon as they are complete."""
        simulator, cores = self.transport.simulator, self.program.cores
        self._started = simulator.cycle
        parts: list[list[TensorPart]] = [[] for _ in cores]
        # For each core, tensors by the number of COMPUTE commands that have completed when they are.
        due = [self._due(core) for core in cores]
        while any(due):
            counts = [min(own, default=0) for own in due]
            outcome = simulator.run(_COMMAND_CYCLES, until_interrupt=True, until_compute_done=counts)
            if outcome is not StopReason.COMPUTE_DONE:
                break
            # Results of commands that complete meanwhile are not written back yet.
            done = [simulator.compute_done(number) for number in range(len(cores))]
            simulator.run(_LANDING_CYCLES)
            for number, own in enumerate(due):
                for count in [count for count in own if count <= done[number]]:
                    data = simulator.read_feature(0, self.config.memory.feature_bytes, core=number)
                    feature = np.frombuffer(data, np.uint8)
                    parts[number] += [TensorPart.written(tensor, feature) for tensor in own.pop(count)]
        return parts

    def _due(self, core: CoreProgram) -> dict[int, list[WrittenTensor]]:
        """Return the tensors of a core by the number of COMPUTE commands that have completed when they are complete."""
        opcodes, due = _compute_opcodes(core), dict[int, list[WrittenTensor]]()
        for tensor in core.written:
            count = sum(opcode is Opcode.COMPUTE for opcode in opcodes[: tensor.command + 1])
            due.setdefault(count, []).append(tensor)
        return due

    def measure(self) -> list[LayerCycles]:
        """Measure the cycles of each layer, and of all, in the trace of the last inference."""
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


def _joined(known: list[dict[str, np.ndarray]], name: str) -> np.ndarray | None:
    """Stack a tensor of several samples; None if the reference does not have it."""
    if not known or name not in known[0]:
        return None
    arrays = [values[name] for values in known]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


@dataclass
class Comparison:
    """The results of one inference in all implementations.

    Attributes
    ----------
    graph : Graph
        The graph, for the golden functions.
    program, config
        The program, for golden machine and core.
    session : InferenceSession
        The session of the program on the accelerator.
    watched : Watched
        The observed accelerator.
    found : Verification
        The verification that receives the results.
    """

    graph: Graph
    program: Program
    config: Config
    session: InferenceSession
    watched: Watched
    found: Verification
    _tensors: dict[str, TensorComparison] = field(default_factory=dict)

    def compare(self, feeds: Mapping[str, np.ndarray], *, interleaving: tuple[str, str]) -> None:
        """Run one inference in all implementations, and count the bytes that differ."""
        inputs = self.session.head(feeds)
        codes = [ports.to_codes(port, array) for port, array in zip(self.program.inputs, inputs, strict=True)]
        shares = [dict(zip(self.graph.inputs, share, strict=True)) for share in zip(*codes, strict=True)]
        golden = [evaluate.evaluate(self.graph, share) for share in shares]
        seen = {
            "machine": self._run_machine(inputs, interleaving),
            "rtl": self.watched.run(self.session.driver(), inputs),
        }
        self.found.cycles = self.watched.cycles
        known = self._reference(feeds)
        # The last sample is repeated in place of missing ones.
        whole = known + known[-1:] * (self.program.batch - len(known))
        for tensor in self.graph.tensors.values():
            for view in tensor.views:
                wanted = _joined(whole, view.name)
                found = {by: codes for by, codes in seen.items() if tensor.name in codes[0]}
                if wanted is not None or self.found.reference:
                    found = {"golden": golden} | found
                else:
                    self._note_missing(view.name)
                if wanted is None:
                    wanted = _of_shares(view, tensor.name, golden)
                self._count(
                    view.name, wanted, {by: _of_shares(view, tensor.name, codes) for by, codes in found.items()}
                )
        # The user's outputs are those that the core stored, after the tail.
        outputs = self.session.tail(feeds, self.watched.outputs)
        for name, array in outputs.items():
            wanted = _joined(known, name)
            if wanted is not None:
                self._count(f"{name} (output)", wanted, {"rtl": array})
            elif not self.found.reference:
                self._note_missing(name)

    def _reference(self, feeds: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """Run the samples one by one in ONNX Runtime; return nothing where it is not a reference."""
        if self.found.reference:
            return []
        random = self.reference.random
        runs = [self.reference.run(sample) for sample in single_samples(feeds)]
        return [{name: array for name, array in run.items() if name not in random} for run in runs]

    @cached_property
    def reference(self) -> Reference:
        """The model in ONNX Runtime, as the reference."""
        return Reference(self.session.loaded.model)

    def _note_missing(self, name: str) -> None:
        """Record that ONNX Runtime is not a reference for a tensor, and why."""
        names = self.found.random if name in self.reference.random else self.found.unseen
        if name not in names:
            names.append(name)

    def _count(self, name: str, wanted: np.ndarray, found: Mapping[str, np.ndarray]) -> None:
        if name not in self._tensors:
            self._tensors[name] = TensorComparison(name)
            self.found.tensors.append(self._tensors[name])
        tensor = self._tensors[name]
        expected = np.frombuffer(contents(wanted), np.uint8)
        tensor.bytes += len(expected)
        for by, array in found.items():
            actual = np.frombuffer(contents(array), np.uint8)
            same_form = (array.shape, array.dtype, len(actual)) == (wanted.shape, wanted.dtype, len(expected))
            differing = int(np.count_nonzero(actual != expected)) if same_form else len(expected)
            setattr(tensor, by, (getattr(tensor, by) or 0) + differing)

    def _run_machine(self, inputs: list[np.ndarray], interleaving: tuple[str, str]) -> list[dict[str, Int8]]:
        golden, (order, turns) = machine.Machine(self.config, seed=self.found.samples), interleaving
        arena = images.new_arena(self.program, self.config)
        golden.run_prologue(self.program, arena, order=order, turns=turns)
        for port, array in zip(self.program.inputs, inputs, strict=True):
            for address, image in ports.to_images(port, array).items():
                arena[address : address + port.size_bytes] = np.frombuffer(image, np.uint8)
        return golden.run_body(self.program, arena, order=order, turns=turns)


def _of_shares(view: View, name: str, shares: Sequence[Mapping[str, Int8]]) -> np.ndarray:
    """Return the ONNX tensor of all shares of the samples, stacked."""
    arrays = [evaluate.to_onnx(view, share[name]) for share in shares]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
