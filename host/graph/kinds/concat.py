"""Concatenations of channels."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..channels import ChannelRule, Place, Selection, Views
from ..finish import looked_up
from ..layer import Layer
from ..tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class Concat(Layer):
    """The channels of all inputs, one input after the other.

    Attributes
    ----------
    tables : tuple of int8[256] or None
        What each input's codes are looked up in; None where they stay as they are.
    """

    tables: tuple[Int8 | None, ...]

    is_copy: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """With its tables or without."""
        return "concatenation"

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """All inputs, each through its table."""
        parts = zip((values[name] for name in self.inputs), self.tables, strict=True)
        return {self.output: np.concatenate([looked_up(part, table) for part, table in parts], axis=2)}

    @property
    def input_tables(self) -> tuple[Int8 | None, ...]:
        """Its only ones."""
        return self.tables

    def with_input_tables(self, inputs: Sequence[str], tables: Sequence[Int8 | None]) -> Concat:
        """A table may be part of the layer in front of it."""
        return dataclasses.replace(self, inputs=tuple(inputs), tables=tuple(tables))

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """The output has the channels of the inputs."""
        return ChannelRule.JOINED

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        """Each input as a whole."""
        sizes = [tensors[name].shape[2] for name in self.inputs]
        firsts = itertools.accumulate(sizes, initial=0)
        return [
            Selection(source, 0, size, first, table)
            for source, (size, first, table) in enumerate(zip(sizes, firsts, self.tables, strict=False))
        ]

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], Place]
    ) -> Iterator[Views]:
        """The output in the tensor in which all inputs lie side by side already; else inputs in the output."""
        parts = self.selections(tensors)
        places = [place_of(name) for name in self.inputs]
        first = places[0]
        if first.tensor != self.inputs[0] and places == [first.of(part.target) for part in parts]:
            yield {self.output: first}
        for part in parts:
            if part.table is None:
                yield {self.inputs[part.source]: Place(self.output, part.target)}
