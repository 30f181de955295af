"""The pattern of a butterfly: which stages factorise a pointwise convolution, and which of their weights exist.

Source: "Efficient inferencing with fast pointwise convolution", US application 16/571,760.

A pointwise convolution of N input and M output channels becomes n = ceil(log2(max(N, M))) stages on 2**n values each.
The stage with the pair distance D gives value i the sum ``own * value[i] + cross * value[i ^ D]``. Channels beyond the
inputs are null, and only the first M values after the last stage are kept.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar


class Density(enum.StrEnum):
    """The set of weights of a stage that are trained; the others are one."""

    FULL = "full"
    CROSS = "cross"
    UNIT = "unit"

    @property
    def trains_own(self) -> bool:
        """Whether the weight from a value to the one of its own index is trained."""
        return self is Density.FULL

    @property
    def trains_cross(self) -> bool:
        """Whether the weight between the two values of a pair is trained."""
        return self is not Density.UNIT


class Direction(enum.StrEnum):
    """The order of the pair distances."""

    BOTTOM_UP = "bottom-up"
    TOP_DOWN = "top-down"


_Kind = TypeVar("_Kind", bound=enum.StrEnum)


def count_stages(inputs: int, outputs: int) -> int:
    """Return the number of stages for a number of channels: ``ceil(log2(max(inputs, outputs)))``."""
    return (max(inputs, outputs) - 1).bit_length()


def pixel_words(width: int, lanes: int) -> int:
    """Return the number of words of ``lanes`` values that a number of values takes."""
    return max(width // lanes, 1)


def lane_exchange(distance: int, lanes: int) -> int:
    """Return the bit in which the lane numbers of a pair differ; 0 for pairs across words."""
    return distance if distance < lanes else 0


@dataclass(frozen=True)
class Pattern:
    """The stages of a butterfly, and the weights that each has.

    Attributes
    ----------
    inputs, outputs : int
        Channels, at least 1, and one of them at least 2.
    distances : tuple of int
        Distance of the pairs of each stage: 1, 2, 4 ... in any order, each once, so that exactly one path leads from
        each input to each output.
    densities : tuple of Density
        Density of each stage.
    skips : tuple of (int, int)
        A skip (i, j) adds the values entering stage i to those leaving stage j, j not less than i.

    Raises
    ------
    ValueError
        If the channels are too few, or distances, densities or skips do not fit the stages.
    """

    inputs: int
    outputs: int
    distances: tuple[int, ...]
    densities: tuple[Density, ...]
    skips: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if min(self.inputs, self.outputs) < 1 or self.inputs == self.outputs == 1:
            raise ValueError(
                "inputs and outputs must be at least 1, and one of them at least 2, "
                f"not {self.inputs} and {self.outputs}"
            )
        wanted = [1 << stage for stage in range(self.stages)]
        if sorted(self.distances) != wanted:
            raise ValueError(f"distances must be {wanted} in any order, each once, not {list(self.distances)}")
        if len(self.densities) != self.stages:
            raise ValueError(
                f"densities must be {self.stages}, one for each stage of {self.width} values, not {len(self.densities)}"
            )
        wrong = [density for density in self.densities if not isinstance(density, Density)]
        if wrong:
            raise ValueError(f"densities must be {', '.join(map(repr, map(str, Density)))}, not {wrong[0]!r}")
        for skip in self.skips:
            if len(skip) != 2 or not 0 <= skip[0] <= skip[1] < self.stages:
                raise ValueError(f"skips must be (i, j) with 0 <= i <= j <= {self.stages - 1}, not {skip}")
        if len(set(self.skips)) < len(self.skips):
            raise ValueError(f"skips must differ from one another, not be {list(self.skips)}")

    @classmethod
    def of(
        cls,
        inputs: int,
        outputs: int,
        direction: Direction | str = Direction.BOTTOM_UP,
        densities: Iterable[Density | str] | None = None,
        skips: Iterable[tuple[int, int]] = (),
    ) -> Pattern:
        """Return the pattern of a direction.

        Parameters
        ----------
        inputs, outputs : int
        direction : Direction or str
        densities : iterable of Density or str, or None
            By default FULL for the stage of the nearest pairs, which is the first one bottom-up and the last one
            top-down, and CROSS for the others.
        skips : iterable of (int, int)

        Raises
        ------
        ValueError
            As the class; also if there is no such direction or density.
        """
        count = count_stages(inputs, outputs)
        is_bottom_up = _member(Direction, "direction", direction) is Direction.BOTTOM_UP
        order = range(count) if is_bottom_up else range(count)[::-1]
        if densities is None:
            chosen = tuple(Density.CROSS if stage else Density.FULL for stage in order)
        else:
            chosen = tuple(_member(Density, "densities", density) for density in densities)
        return cls(inputs, outputs, tuple(1 << stage for stage in order), chosen, tuple(skips))

    @property
    def stages(self) -> int:
        """The number of stages."""
        return count_stages(self.inputs, self.outputs)

    @property
    def width(self) -> int:
        """The number of values of a stage, including zeros: the channels, rounded up to a power of two."""
        return 1 << self.stages

    @property
    def direction(self) -> Direction | None:
        """The direction of the distances; None where they have another order."""
        ascending = tuple(1 << stage for stage in range(self.stages))
        if self.distances == ascending:
            return Direction.BOTTOM_UP
        return Direction.TOP_DOWN if self.distances == ascending[::-1] else None

    @property
    def weights(self) -> int:
        """The number of trained weights, those of zero channels included: the multiplications of a pixel if none is
        left out."""
        return sum(self.width * (density.trains_own + density.trains_cross) for density in self.densities)

    @property
    def live_multiplications(self) -> int:
        """The multiplications of a pixel that are needed: a kept output depends on them, and their value may differ
        from zero."""
        return sum(sum(own) + sum(cross) for own, cross in self.live_weights())

    @property
    def estimated_multiplications(self) -> Fraction:
        """The source's estimate of needed multiplications: ``weights * inputs * outputs / width**2``."""
        return Fraction(self.weights * self.inputs * self.outputs, self.width**2)

    def live_weights(self) -> list[tuple[list[bool], list[bool]]]:
        """Return masks of the own and of the cross weights of each stage that are trained and live, by the index of the
        result.

        A weight is live if some input reaches its value, and its result reaches a kept output. Skips change nothing
        here: they lead to where own weights lead anyway.
        """
        reached, needed = self._reached(), self._needed()
        live = []
        for stage, (distance, density) in enumerate(zip(self.distances, self.densities, strict=True)):
            indices = range(self.width)
            own = [density.trains_own and reached[stage][i] and needed[stage + 1][i] for i in indices]
            cross = [density.trains_cross and reached[stage][i ^ distance] and needed[stage + 1][i] for i in indices]
            live.append((own, cross))
        return live

    def _reached(self) -> list[list[bool]]:
        """Return, for each stage, a mask of its input values that some input reaches; the last entry is for the last
        outputs."""
        reached = [[index < self.inputs for index in range(self.width)]]
        for distance in self.distances:
            reached.append(_with_partners(reached[-1], distance))
        return reached

    def _needed(self) -> list[list[bool]]:
        """Return, for each stage, a mask of its input values that a kept output depends on; the last entry is for the
        last outputs."""
        needed = [[index < self.outputs for index in range(self.width)]]
        for distance in reversed(self.distances):
            needed.append(_with_partners(needed[-1], distance))
        return needed[::-1]


def _with_partners(marked: list[bool], distance: int) -> list[bool]:
    """Mark the other value of each pair in which one is marked."""
    return [marked[index] or marked[index ^ distance] for index in range(len(marked))]


def _member(kind: type[_Kind], name: str, value: str) -> _Kind:
    if value not in list(kind):
        raise ValueError(f"{name} must be {' or '.join(map(repr, map(str, kind)))}, not {value!r}")
    return kind(value)
