"""The golden functions: the bytes of the accelerator without one, on all processor cores."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..driver import ports
from ..graph import Int8
from .backend import Arrays, Backend
from .evaluating import evaluate_all


class GoldenFunctions(Backend):
    """Inferences evaluated layer by layer; how cores would share them changes no byte, and is left out."""

    name = "golden"
    title = "golden functions"

    def _set_up(self) -> None:
        self._graph = self._make_graph()

    def prepare(self) -> None:
        """Nothing: the graph is there."""

    def infer(self, inputs: Iterable[Arrays]) -> Iterator[list[np.ndarray]]:
        """Each share of an inference by itself, several at a time where that pays."""
        shares = (share for arrays in inputs for share in self._shares(arrays))
        with contextlib.closing(evaluate_all(self._graph, shares)) as evaluated:
            while found := list(itertools.islice(evaluated, self.program.shares)):
                yield self._outputs(found)

    def _shares(self, arrays: Arrays) -> list[list[Int8]]:
        """The codes of the graph's inputs, for each share of the samples."""
        checked = [ports.check(port, array) for port, array in zip(self.program.inputs, arrays, strict=True)]
        codes = [ports.to_codes(port, array) for port, array in zip(self.program.inputs, checked, strict=True)]
        return [list(share) for share in zip(*codes, strict=True)]

    def _outputs(self, shares: Sequence[Sequence[Int8]]) -> list[np.ndarray]:
        """The arrays of the output ports, from the codes of the graph's outputs for each share."""
        return [
            ports.from_codes(port, codes)
            for port, codes in zip(self.program.outputs, zip(*shares, strict=True), strict=True)
        ]
