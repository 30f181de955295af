"""Comparison: one inference everywhere, and which bytes and cycles differ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...golden.config import Config
from ...golden.isa import COMMAND_BYTES, Opcode
from ...golden.machine import images, machine
from ...golden.machine.tensors import tensor_image
from ...golden.program.program import Program
from ..driver import ports
from ..graph import Graph, Int8, evaluate
from ..model.arrays import contents
from ..model.reference import Reference
from ..simulation.settings import EventKind, Outcome
from ..simulation.verilator_transport import VerilatorTransport
from .session import InferenceSession, single_samples
from .verification import LayerCycles, TensorComparison, Verification

#: Cycles in which a command must complete, and cycles from its completion to the landing of its last result.
_COMMAND_CYCLES, _LANDING_CYCLES = 10_000_000, 8


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
        Of the program, over ``transport``.
    transport : VerilatorTransport
        To the simulated core.
    found : Verification
        What is filled in.
    """

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
        # What the user gets: the outputs that the core stored, after the tail.
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

    def _run_machine(self, codes: Mapping[str, Int8], order: str) -> dict[str, Int8]:
        golden = machine.Machine(self.config, seed=self.found.samples)
        arena = images.new_arena(self.program)
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
        written = sorted(self.program.core.written, key=lambda tensor: tensor.command)
        for command, group in itertools.groupby(written, lambda tensor: tensor.command):
            ordinal = sum(opcode is Opcode.COMPUTE for opcode in self._compute_opcodes()[: command + 1])
            if (
                simulator.run(_COMMAND_CYCLES, until_interrupt=True, until_compute_done=ordinal)
                is not Outcome.COMPUTE_DONE
            ):
                break
            simulator.run(_LANDING_CYCLES)
            feature = np.frombuffer(simulator.read_feature(0, self.config.memory.feature_bytes), np.uint8)
            tensors |= {tensor.name: images.read_tensor(tensor, feature) for tensor in group}
        self._outputs = driver.finish()
        self.found.cycles = driver.counters()["cycles"]
        for tensor in self.program.spilled:
            data = self.transport.read_memory(self.transport.arena_base + tensor.address, tensor.size_bytes)
            tensors[tensor.name] = images.spilled_codes(tensor, np.frombuffer(data, np.uint8))
        return tensors

    def _compute_opcodes(self) -> list[Opcode]:
        commands = self.program.core.body.compute.commands
        return [Opcode(commands[start] & 15) for start in range(0, len(commands), COMMAND_BYTES)]

    def measure(self) -> list[LayerCycles]:
        """Layer by layer, from the trace of the last sample."""
        issues = iter([int(cycle) for cycle, kind in self.transport.simulator.events() if kind == EventKind.ISSUE_LAST])
        last_issue = {
            index: next(issues) for index, opcode in enumerate(self._compute_opcodes()) if opcode is Opcode.COMPUTE
        }
        layers, before = [], self._started
        for layer in self.program.core.layers:
            now = last_issue[layer.commands[-1]]
            layers.append(LayerCycles(layer.name, layer.cycles, now - before))
            before = now
        layers.append(LayerCycles("inference", self.program.predicted_cycles, self.found.cycles))
        return layers
