"""Arrangements whose channels may lie in any order: shuffles, and what layout operators move."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..boxes.runs import channel_runs, cost_of
from ..channels import ChannelRule, Place, Selection, Views
from ..layer import Layer
from ..tensor import Shape, Tensor
from .rearrange import Rearrange

Channels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrange(Rearrange):
    """As :class:`Rearrange`; where an element has one channel in every pixel of a piece, channels are free."""

    def channel_rule(self, source: Tensor, target: Tensor) -> ChannelRule:
        """Free where no piece changes channels from pixel to pixel."""
        is_free = len(self.inputs) == 1 and not any(down[2] or across[2] for down, across, _ in self._vectors)
        return ChannelRule.MOVED if is_free else ChannelRule.FIXED

    @property
    def _vectors(self) -> Iterator[tuple]:
        return (part.vectors for part in self.pieces)

    @property
    def is_in_runs(self) -> bool:
        """Whether each piece has channels that lie side by side before and after."""
        return all(part.channels == 1 or (part.spread, part.vectors[2]) == (1, (0, 0, 1)) for part in self.pieces)

    def _bundles(self) -> dict[tuple, tuple[Selection, dict[int, int]]]:
        """What is alike in all but channels: a piece, and the channel of the input for each of the output."""
        found: dict[tuple, tuple[Selection, dict[int, int]]] = {}
        for part in self.pieces:
            down, across, aside = part.vectors
            for number, target in enumerate(part.targets):
                row, column = part.read.row + number * aside[0], part.read.column + number * aside[1]
                key = row, column, down, across, part.written, part.size, part.image, part.code
                start = dataclasses.replace(part, read=part.read._replace(row=row, column=column))
                found.setdefault(key, (start, {}))[1][target] = part.first + number * aside[2]
        return found

    def order_in_runs(self, shape: Shape, outputs: Channels, inputs: Channels) -> Channels:
        """Sorted by where they lie in the input, if that costs less."""
        places, found = np.argsort(inputs), {}
        # What is taken of no input goes where there is room.
        for start, channels in sorted(self._bundles().values(), key=lambda bundle: bundle[0].code is not None):
            by_place = None if start.code is not None else lambda target, channels=channels: places[channels[target]]
            for target in sorted(channels, key=by_place):
                found.setdefault(target)
        orders = outputs, np.array([*found])
        return min(orders, key=lambda order: cost_of(self.reordered(order, inputs).pieces, shape))

    def reordered(self, outputs: Channels, inputs: Channels) -> Arrange:
        """Runs of channels, as they lie then."""
        if self.channel_rule(None, None) is not ChannelRule.MOVED:
            return self
        places, sources, pieces = np.argsort(outputs), np.argsort(inputs), []
        for start, channels in self._bundles().values():
            # What is taken of no input lies in runs wherever its places do.
            taken_at = {
                target: places[target] if start.code is not None else sources[channels[target]] for target in channels
            }
            moved = sorted((int(places[target]), int(place)) for target, place in taken_at.items())
            (down, across, _), is_plain = start.vectors, start.along is None
            for targets, taken in channel_runs(*np.array(moved).T):
                step = taken.step if is_plain else 1
                along = None if is_plain else (down, across, (0, 0, taken.step))
                first = taken[0] if start.code is None else 0
                new = {"first": first, "channels": len(targets), "target": targets[0], "step": step, "along": along}
                pieces.append(dataclasses.replace(start, **new, spread=targets.step))
        return dataclasses.replace(self, pieces=tuple(pieces))

    def view_choices(
        self, layers: Sequence[Layer], tensors: Mapping[str, Tensor], place_of: Callable[[str], Place]
    ) -> Iterator[Views]:
        """As of any move; and the output in the input, where it is some neighbouring channels of that."""
        yield from super().view_choices(layers, tensors, place_of)
        (part, *more), is_run = self.pieces, self.is_in_runs
        if not more and is_run and part.keeps_pixels and part.table is None and part.code is None:
            yield {self.output: Place(self.input, part.first)}
