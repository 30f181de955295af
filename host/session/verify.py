"""Verification: the same inputs through ONNX Runtime, golden functions, golden machine and the simulated core."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ...golden import machine
from ...golden.config import Config
from ...golden.elements import BINARY_BITS, CODE_BITS
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.program import MAGIC, Program
from ...golden.tensors import tensor_image
from ..compiler import batched, compile_graph
from ..driver import ports
from ..files.progress import Progress, silent
from ..frontend import import_model
from ..graph import Graph, Int8, evaluate
from ..model import reference, runtime
from ..model.arrays import contents
from ..simulation.simulator import EventKind, MemorySettings, Outcome
from ..simulation.verilator_transport import VerilatorTransport
from .loading import load_program
from .session import InferenceSession, single_samples

#: A prediction is right within this part of the measured cycles, or this many cycles, whichever is more.
TOLERANCE, TOLERANCE_CYCLES = 0.02, 16
#: What elements are called by their bits.
_KINDS = {CODE_BITS: "int8", BINARY_BITS: "binary"}
#: Cycles in which a command must complete, and cycles from its completion to the landing of its last result.
_COMMAND_CYCLES, _LANDING_CYCLES = 10_000_000, 8


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
    """Predicted and measured cycles of one layer, from the last issue of the one before to its own."""

    name: str
    predicted: int
    measured: int

    @property
    def is_right(self) -> bool:
        """Whether the prediction is within the tolerance."""
        return abs(self.predicted - self.measured) <= max(TOLERANCE_CYCLES, TOLERANCE * self.measured)


@dataclass
class Verification:
    """What a verification found.

    Attributes
    ----------
    program : Program
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

    program: Program
    samples: int
    tensors: list[TensorComparison] = field(default_factory=list)
    layers: list[LayerCycles] = field(default_factory=list)
    cycles: int = 0
    reference: str = ""
    unseen: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)

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


def verify(
    data: bytes,
    config: Config,
    samples: int = 8,
    seed: int = 0,
    *,
    batch: int | None = None,
    name: str = "model",
    settings: MemorySettings | None = None,
    progress: Progress = silent,
) -> Verification:
    """Compare everything on random inputs.

    Parameters
    ----------
    data : bytes
        An ONNX file, or a program file (which contains one).
    config : Config
    samples : int
        Random inputs.
    seed : int
        Of the inputs.
    batch : int or None
        Samples of an inference, by default those that a program was compiled for, and 1 for a model. What is missing in
        the last inference is its last input again.
    name : str
        What messages call the model.
    settings : MemorySettings or None
        The simulated memory; cycles are compared on the ideal one, which is the default.
    progress : callable

    Raises
    ------
    ValueError
        If the model or the program is refused.
    AcceleratorError
        If the simulated core stops.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    is_program = data.startswith(MAGIC)
    program = load_program(data, config, name=name, batch=batch) if is_program else None
    graph = import_model(program.model if program else data, name)
    graph = batched(graph, program.batch if program else 1 if batch is None else batch)
    if program is None:
        program = compile_graph(graph, config)
    _check_tensors(program, graph, name)
    transport = VerilatorTransport(config, settings=settings, progress=progress)
    session = InferenceSession(program, config, transport)
    run = _Verification(
        graph, program, config, session, transport, Verification(program, samples, reference=runtime.probe() or "")
    )
    rng = np.random.default_rng(seed)
    # The first inference also fetches the program: cycles are those of a later one.
    session.run(None, random_feeds(session, graph, rng))
    orders = itertools.cycle(machine.ORDERS)
    for start in range(0, samples, program.batch):
        progress("comparing samples", start, samples)
        count = min(program.batch, samples - start)
        run.compare(random_feeds(session, graph, rng, count), order=next(orders))
    if settings in (None, MemorySettings()):
        run.found.layers = run.measure()
    return run.found


def _check_tensors(program: Program, graph: Graph, name: str) -> None:
    """What a program says of its tensors must be what its model has."""
    ports = [*zip(program.inputs, graph.inputs, strict=False), *zip(program.outputs, graph.outputs, strict=False)]
    places = [(known, port.shape, port.bits) for port, known in ports]
    places += [(tensor.name, tensor.shape, tensor.bits) for tensor in (*program.written, *program.spilled)]
    for tensor, shape, bits in places:
        known = graph.tensors.get(tensor)
        if known is None:
            raise ValueError(f"{name}: {tensor} must be in the model, and is not; the file is damaged: compile again")
        if (known.shape, known.bits) != (shape, bits):
            wanted, found = (
                f"{_KINDS[width]}{list(size)}" for size, width in ((known.shape, known.bits), (shape, bits))
            )
            raise ValueError(f"{name}: {tensor} must be {wanted}, not {found}; the file is damaged: compile again")


def random_feeds(
    session: InferenceSession, graph: Graph, rng: np.random.Generator, samples: int = 1
) -> dict[str, np.ndarray]:
    """Random inputs, one behind the other: every code of a quantised input, and the whole range of a float one."""
    feeds = {}
    for index, info in enumerate(session.get_inputs()):
        shape = (samples, *info.sample_shape)
        if info.dtype.kind in "iu":
            limits = np.iinfo(info.dtype)
            feeds[info.name] = rng.integers(limits.min, limits.max, shape, info.dtype, endpoint=True)
        else:
            tensor = graph.tensors[graph.inputs[min(index, len(graph.inputs) - 1)]]
            low, high = ((code - tensor.zero_point) * tensor.scale for code in (-128, 127))
            feeds[info.name] = rng.uniform(low, high, shape).astype(info.dtype)
    return feeds


def _joined(known: list[dict[str, np.ndarray]], name: str) -> np.ndarray | None:
    """A tensor of several samples, one behind the other; None if the reference does not have it."""
    if not known or name not in known[0]:
        return None
    arrays = [values[name] for values in known]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


@dataclass
class _Verification:
    graph: Graph
    program: Program
    config: Config
    session: InferenceSession
    transport: VerilatorTransport
    found: Verification
    _tensors: dict[str, TensorComparison] = field(default_factory=dict)

    def compare(self, feeds: Mapping[str, np.ndarray], *, order: str) -> None:
        """Run one inference everywhere, and count."""
        inputs = self.session.head(feeds)
        codes = {
            name: ports.to_codes(port, array)
            for name, port, array in zip(self.graph.inputs, self.program.inputs, inputs, strict=True)
        }
        golden = evaluate.evaluate(self.graph, codes)
        seen = {"machine": self._run_machine(codes, order), "rtl": self._run_core(inputs)}
        known = self._reference(feeds)
        # The last one stands for those that are missing.
        whole = known + known[-1:] * (self.program.batch - len(known))
        for tensor in self.graph.tensors.values():
            for view in tensor.views:
                wanted = _joined(whole, view.name)
                found = {by: codes[tensor.name] for by, codes in seen.items() if tensor.name in codes}
                if wanted is not None or self.found.reference:
                    found = {"golden": golden[tensor.name]} | found
                else:
                    self._note_missing(view.name)
                if wanted is None:
                    wanted = evaluate.to_onnx(view, golden[tensor.name])
                self._count(view.name, wanted, {by: evaluate.to_onnx(view, codes) for by, codes in found.items()})
        # What the user gets: the outputs that the core stored, behind the tail.
        outputs = self.session.tail(feeds, self._outputs)
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
        random = self._random
        runs = [reference.run(self.program.model, sample) for sample in single_samples(feeds)]
        return [{name: array for name, array in run.items() if name not in random} for run in runs]

    @property
    def _random(self) -> set[str]:
        return reference.reference(self.program.model).random

    def _note_missing(self, name: str) -> None:
        """Note that ONNX Runtime is no reference for a tensor, and why."""
        names = self.found.random if name in self._random else self.found.unseen
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

    def _run_machine(self, codes: Mapping[str, Int8], order: str) -> dict[str, Int8]:
        golden = machine.Machine(self.config, seed=self.found.samples)
        arena = machine.new_arena(self.program)
        golden.run_prologue(self.program, arena, order=order)
        for name, port in zip(self.graph.inputs, self.program.inputs, strict=True):
            image = tensor_image(codes[name], port.bits)
            arena[port.address : port.address + port.size_bytes] = image.ravel()
        return golden.run_body(self.program, arena, order=order)

    def _run_core(self, inputs: list[np.ndarray]) -> dict[str, Int8]:
        """Every written tensor, read from the feature memory when its last command has completed, or from the arena."""
        driver, simulator = self.session.driver(), self.transport.simulator
        simulator.clear_events()
        driver.begin(inputs)
        self._started = simulator.cycle
        tensors = {}
        written = sorted(self.program.written, key=lambda tensor: tensor.command)
        for command, group in itertools.groupby(written, lambda tensor: tensor.command):
            ordinal = sum(opcode is Opcode.COMPUTE for opcode in self._compute_opcodes()[: command + 1])
            if (
                simulator.run(_COMMAND_CYCLES, until_interrupt=True, until_compute_done=ordinal)
                is not Outcome.COMPUTE_DONE
            ):
                break
            simulator.run(_LANDING_CYCLES)
            feature = np.frombuffer(simulator.read_feature(0, self.config.memory.feature_bytes), np.uint8)
            tensors |= {tensor.name: machine.read_tensor(tensor, feature) for tensor in group}
        self._outputs = driver.finish()
        self.found.cycles = driver.counters()["cycles"]
        for tensor in self.program.spilled:
            data = self.transport.read_memory(self.transport.arena_base + tensor.address, tensor.size_bytes)
            tensors[tensor.name] = machine.spilled_codes(tensor, np.frombuffer(data, np.uint8))
        return tensors

    def _compute_opcodes(self) -> list[Opcode]:
        commands = self.program.body.compute
        return [Opcode(commands[start] & 15) for start in range(0, len(commands), COMMAND_BYTES)]

    def measure(self) -> list[LayerCycles]:
        """Layer by layer, from the trace of the last sample."""
        issues = iter([int(cycle) for cycle, kind in self.transport.simulator.events() if kind == EventKind.ISSUE_LAST])
        last_issue = {
            index: next(issues) for index, opcode in enumerate(self._compute_opcodes()) if opcode is Opcode.COMPUTE
        }
        layers, before = [], self._started
        for layer in self.program.layers:
            now = last_issue[layer.commands[-1]]
            layers.append(LayerCycles(layer.name, layer.cycles, now - before))
            before = now
        layers.append(LayerCycles("inference", self.program.predicted_cycles, self.found.cycles))
        return layers
