"""Slices of channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..channels import Place, Selection, Views
from ..layer import Layer
from ..tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class Slice(Layer):
    """The channels ``first`` to ``first + channels - 1`` of the input."""

    first: int
    channels: int

    is_copy: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """Of channels."""
        return "slice"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Some channels of its input."""
        return {self.output: values[self.input][:, :, self.first : self.first + self.channels]}

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        """The only one."""
        return [Selection(0, self.first, self.channels, 0)]

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], Place]
    ) -> Iterator[Views]:
        """The output in the input. An addition of two slices takes both as views or none: so all of an input first."""
        yield {
            other.output: Place(other.input, other.first)
            for other in layers
            if isinstance(other, Slice) and other.input == self.input
        }
        yield {self.output: Place(self.input, self.first)}
