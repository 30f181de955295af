"""Comparison: one inference everywhere, and which bytes and cycles differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...golden.config import Config
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.machine import images, machine
from ...golden.machine.images import Part, of_shares
from ...golden.program.program import CoreProgram, Program, WrittenTensor
from ..driver import ports
from ..driver.driver import Driver
from ..driver.transport import Transport
from ..graph import Graph, Int8, View, evaluate
from ..model.arrays import contents
from ..model.reference import Reference
from ..simulation.simulator import EventKind, Outcome, VerilatorTransport
from .loading import Loaded
from .session import InferenceSession, single_samples

# What a verification found.

#: A prediction is right within this part of the measured cycles, or this many cycles, whichever is more.
TOLERANCE, TOLERANCE_CYCLES = 0.02, 16


@dataclass
class TensorComparison:
    """One quantised tensor, over all samples.

    Attributes
    ----------
    name : str
        Of the ONNX tensor.
    bytes : int
        Bytes that were compared, for each of the three.
    golden, machine, rtl : int or None
        Bytes that differ from ONNX Runtime's (or from the golden functions', where ONNX Runtime is no reference); None
        where the tensor cannot be seen: fused tensors are seen in the golden functions alone.
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

    ``whole`` are the measured cycles that the tolerance is a part of: the layer's, or those of the inference where
    cores wait for one another, now in this layer and now in that.
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
    """What a verification found.

    Attributes
    ----------
    loaded : Loaded
        The program with the models in it.
    samples : int
    tensors : list of TensorComparison
        In order of execution, the model's outputs last.
    layers : list of LayerCycles
        Empty where the memory is not the ideal one.
    cycles : int
        Of one inference, from start to done.
    reference : str
        Why ONNX Runtime on this processor is no reference; empty if it is one.
    unseen : list of str
        Tensors that are compared with the golden functions although ONNX Runtime is a reference, because it does not
        show them for certain, see :class:`.reference.Reference`; the outputs never are.
    random : list of str
        Tensors that random numbers decide, in ONNX Runtime as well: they are compared with the golden functions, and
        outputs not at all.
    """

    loaded: Loaded
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
        """Comparisons of bytes in all."""
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
        """Whether bytes and cycles are."""
        return self.bytes_right and self.cycles_right

    @property
    def verdict(self) -> str:
        """Which of the two are right, and where they are not."""
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


# The accelerator in a comparison: what can be seen of an inference, on a simulated core and on a board.

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


def _joined(known: list[dict[str, np.ndarray]], name: str) -> np.ndarray | None:
    """A tensor of several samples, one after the other; None if the reference does not have it."""
    if not known or name not in known[0]:
        return None
    arrays = [values[name] for values in known]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


@dataclass
class Comparison:
    """The same inference everywhere.

    Attributes
    ----------
    graph : Graph
        What golden functions evaluate.
    program, config
        What golden machine and core run.
    session : InferenceSession
        Of the program, on it.
    watched : Watched
        The accelerator.
    found : Verification
        What is filled in.
    """

    graph: Graph
    program: Program
    config: Config
    session: InferenceSession
    watched: Watched
    found: Verification
    _tensors: dict[str, TensorComparison] = field(default_factory=dict)

    def compare(self, feeds: Mapping[str, np.ndarray], *, interleaving: tuple[str, str]) -> None:
        """Run one inference everywhere, and count."""
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
        # The last one stands for those that are missing.
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
        # What the user gets: the outputs that the core stored, after the tail.
        outputs = self.session.tail(feeds, self.watched.outputs)
        for name, array in outputs.items():
            wanted = _joined(known, name)
            if wanted is not None:
                self._count(f"{name} (output)", wanted, {"rtl": array})
            elif not self.found.reference:
                self._note_missing(name)

    def _reference(self, feeds: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """What ONNX Runtime, which runs samples one by one, gives for each; nothing where it is no reference."""
        if self.found.reference:
            return []
        random = self.reference.random
        runs = [self.reference.run(sample) for sample in single_samples(feeds)]
        return [{name: array for name, array in run.items() if name not in random} for run in runs]

    @cached_property
    def reference(self) -> Reference:
        """The model in ONNX Runtime."""
        return Reference(self.session.loaded.model)

    def _note_missing(self, name: str) -> None:
        """Note that ONNX Runtime is no reference for a tensor, and why."""
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
    """The ONNX tensor of all shares of the samples, one after the other."""
    arrays = [evaluate.to_onnx(view, share[name]) for share in shares]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
