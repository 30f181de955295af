"""Comparison: one inference everywhere, and which bytes and cycles differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from ...golden.config import Config
from ...golden.machine import images, machine
from ...golden.program.program import Program
from ..driver import ports
from ..graph import Graph, Int8, View, evaluate
from ..model.arrays import contents
from ..model.reference import Reference
from .session import InferenceSession, single_samples
from .verification import TensorComparison, Verification
from .watching import Watched


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
