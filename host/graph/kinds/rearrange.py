"""Elements moved to other pixels and channels: upsampling, depth to space, crops, borders, shuffles, transposes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..channels import Place, Selection, Views
from ..finish import looked_up
from ..layer import Layer
from ..phase import WHOLE
from ..tensor import Int8, Shape, Tensor


@dataclass(frozen=True, eq=False)
class Rearrange(Layer):
    """Each element of the output is one of an input, or has a code of its own.

    Attributes
    ----------
    title : str
        What it is called.
    pieces : tuple of Selection
        Which elements become which, and which always have one code. Together they are the output, each element once.
    """

    title: str
    pieces: tuple[Selection, ...]

    is_copy: ClassVar[bool] = True

    def kind(self, source: Shape, target: Shape) -> str:
        """What it does."""
        return self.title

    def evaluate(self, values: Mapping[str, Int8], tensors: Mapping[str, Tensor]) -> dict[str, Int8]:
        """Every piece at its place."""
        height, width, channels = tensors[self.output].shape
        result = np.empty((height, width, channels), np.int8)
        for part in self.pieces:
            rows, columns = part.within(range(height), range(width))
            places = np.ix_(part.written.rows(rows), part.written.columns(columns), part.targets)
            if part.code is not None:
                result[places] = part.code
                continue
            taken = values[self.inputs[part.source]][tuple(part.elements(rows, columns))]
            result[places] = looked_up(taken, part.table)
        return {self.output: result}

    def selections(self, tensors: Mapping[str, Tensor]) -> list[Selection]:
        """Its pieces."""
        return [*self.pieces]

    def _takes_all(self, part: Selection, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a piece is the whole of an input, its last rows and columns as well."""
        height, width, channels = tensors[self.inputs[part.source]].shape
        rows, columns = part.within(*map(range, tensors[self.output].shape[:2]))
        is_whole = part.read == WHOLE and part.along is None and (len(rows), len(columns)) == (height, width)
        is_alike = part.spread == 1 and part.table is None and part.code is None
        return is_whole and is_alike and [*part.sources] == [*range(channels)]

    def with_selections(self, inputs: Sequence[str], selections: Sequence[Selection]) -> Rearrange:
        """Other pieces."""
        return dataclasses.replace(self, inputs=tuple(inputs), pieces=tuple(selections))

    def of_rows(self, rows: range, height: int) -> Rearrange | None:
        """Whole windows, as each row of them is another one."""
        up = self.window.up[0]
        if rows.start % up or rows.stop % up:
            return None
        read = self.window.rows_read(rows, height)
        parts = [part.of_rows(rows, read) for part in self.pieces]
        pieces = tuple(part for part in parts if part is not None)
        return dataclasses.replace(self, window=self.window.of_rows(rows, height), pieces=pieces)

    def of_channels(self, channels: range, source: Tensor) -> tuple[Rearrange, range] | None:
        """Every channel for itself, where all stay where they are."""
        channels_of = {(part.first, part.target, part.channels, part.along) for part in self.pieces}
        if channels_of != {(0, 0, source.shape[2], None)}:
            return None
        pieces = tuple(dataclasses.replace(part, channels=len(channels)) for part in self.pieces)
        return dataclasses.replace(self, pieces=pieces), channels

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], Place]
    ) -> Iterator[Views]:
        """Inputs in the output, which nothing else reads: around a pixel of theirs lies no other one of theirs."""
        found: Views = {}
        for part in self.selections(tensors):
            name = self.inputs[part.source]
            is_alone = all(other is self for other in layers if name in other.inputs)
            if is_alone and self._takes_all(part, tensors):
                found.setdefault(name, Place(self.output).of(part.target, part.written))
        if found:
            yield found
        if len(found) > 1:
            yield from ({name: place} for name, place in found.items())
