"""A program with the ONNX models in it, each of which is parsed and opened once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from ...golden.program.program import Program
from ..model.arrays import TensorInfo, describe_model
from ..model.model import Model

if TYPE_CHECKING:
    import onnxruntime

    from ..graph import Graph


@dataclass(frozen=True, eq=False)
class Loaded:
    """A program, as it is handed on.

    Attributes
    ----------
    name : str
        What messages call it.
    program : Program
    model, head, tail : Model
        Those of the program; head and tail are empty where there is none.
    compiled : Graph or None
        What was compiled; None where that was done before.
    """

    name: str
    program: Program
    model: Model
    head: Model
    tail: Model
    compiled: Graph | None = field(default=None, repr=False)

    @classmethod
    def of(cls, name: str, program: Program) -> Loaded:
        """A program of which nothing is parsed yet."""
        return cls(name, program, Model(program.model), Model(program.head), Model(program.tail))

    @property
    def parts(self) -> tuple[Model, Model]:
        """What runs on the host."""
        return self.head, self.tail

    @cached_property
    def graph(self) -> Graph:
        """What the accelerator computes, for the golden functions.

        Raises
        ------
        ValueError
            If the program is not one of its model.
        """
        from .program_tensors import check_tensors  # noqa: PLC0415

        graph = self.compiled or self._imported()
        check_tensors(self.program, graph, self.name)
        return graph

    def _imported(self) -> Graph:
        # They take a while to import, which a program that the accelerator runs needs not.
        from ..compiler import batched  # noqa: PLC0415
        from ..frontend import import_model  # noqa: PLC0415

        return batched(import_model(self.model, self.name), self.program.batch // self.program.shares)

    @cached_property
    def ends(self) -> tuple[list[TensorInfo], list[TensorInfo]]:
        """Inputs and outputs of the model."""
        return describe_model(self.model)

    @cached_property
    def head_session(self) -> onnxruntime.InferenceSession | None:
        """The head in ONNX Runtime, or None where there is none."""
        return _open(self.head)

    @cached_property
    def tail_session(self) -> onnxruntime.InferenceSession | None:
        """The tail in ONNX Runtime, or None where there is none."""
        return _open(self.tail)


def _open(part: Model) -> onnxruntime.InferenceSession | None:
    if not part:
        return None
    # A model without head and tail needs less of it.
    from ..model.executed import open_host_part  # noqa: PLC0415

    return open_host_part(part)
