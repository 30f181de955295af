"""How a butterfly's weights lie in the words of hardware that is built for a larger one.

Hardware for a pattern runs every function whose stages are among its own, in their order: the other stages pass values
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .butterfly import Density, Pattern, lane_exchange, pixel_words
from .convolution import Int8
from .fpc_layer import UNIT_WEIGHT, Stages


@dataclass(frozen=True, eq=False)
class Placed:
    """A function on hardware for a pattern.

    Attributes
    ----------
    words : int8[positions, columns, lanes]
        Of weights, for each word of a pixel. Every stage of the hardware has a column for each trained weight, own ones
        first. A partner within the word is multiplied in its own lane.
    halves, skips : int
        Bits, the first stage's (skip's) lowest: see :class:`~lutterfly.hdl.butterfly.butterfly.Butterfly`.
    """

    words: Int8
    halves: int
    skips: int


def place(stages: Stages, hardware: Pattern, lanes: int) -> Placed:
    """Place a function on hardware.

    Parameters
    ----------
    stages : Stages
    hardware : Pattern
    lanes : int
        Values in a word, a power of two.

    Raises
    ------
    ValueError
        If the hardware has no stage of a distance, or not in that order, if a stage there has fewer weights, or a skip
        is not there.
    """
    of_stage = stages_on(stages.pattern, hardware)
    positions = pixel_words(stages.pattern.width, lanes)
    halves = sum(stages.growth_shifts[stage] << index for index, stage in of_stage.items())
    columns = []
    for index, is_own, order in _columns(hardware, lanes):
        stage = of_stage.get(index)
        if stage is None:
            weights = np.full(stages.pattern.width, UNIT_WEIGHT if is_own else 0, np.int8)
        else:
            weights = (stages.own if is_own else stages.cross)[stage]
        columns.append(_words(weights, positions, lanes)[:, order])
    skips = sum(1 << hardware.skips.index(skip) for skip in _skips_on(stages.pattern, hardware, of_stage))
    words = np.stack(columns, axis=1) if columns else np.zeros((positions, 0, lanes), np.int8)
    return Placed(words, halves, skips)


def stages_on(pattern: Pattern, hardware: Pattern) -> dict[int, int]:
    """For each stage of the hardware that a pattern uses, the pattern's stage.

    Raises
    ------
    ValueError
        As :func:`place`.
    """
    if pattern.width > hardware.width:
        raise ValueError(f"channels must be at most {hardware.width}, not {max(pattern.inputs, pattern.outputs)}")
    used = [index for index, distance in enumerate(hardware.distances) if distance in pattern.distances]
    order = tuple(hardware.distances[index] for index in used)
    if order != pattern.distances:
        raise ValueError(f"distances must be {list(order)}, in this order, not {list(pattern.distances)}")
    found = {index: stage for stage, index in enumerate(used)}
    for index, stage in found.items():
        built, wanted = hardware.densities[index], pattern.densities[stage]
        if _weights(wanted) > _weights(built):
            raise ValueError(f"densities[{stage}] must be at most {built}, not {wanted}")
    _skips_on(pattern, hardware, found)
    return found


def _skips_on(pattern: Pattern, hardware: Pattern, of_stage: dict[int, int]) -> list[tuple[int, int]]:
    """The hardware's skips that a pattern's are."""
    on = {stage: index for index, stage in of_stage.items()}
    skips = [(on[first], on[last]) for first, last in pattern.skips]
    for skip, built in zip(pattern.skips, skips, strict=True):
        if built not in hardware.skips:
            raise ValueError(f"skips must be among {list(hardware.skips)}, and {skip} is {built} there")
    return skips


def _weights(density: Density) -> int:
    return density.trains_own + density.trains_cross


def _columns(hardware: Pattern, lanes: int) -> Iterator[tuple[int, bool, NDArray[np.intp]]]:
    """For each column of weights its stage, whether it has own weights, and the lane whose result each lane's has."""
    for index, (distance, density) in enumerate(zip(hardware.distances, hardware.densities, strict=True)):
        if density.trains_own:
            yield index, True, np.arange(lanes)
        if density.trains_cross:
            yield index, False, np.arange(lanes) ^ lane_exchange(distance, lanes)


def _words(weights: Int8, positions: int, lanes: int) -> Int8:
    """int8[positions, lanes]: one weight for each value."""
    padded = np.zeros(positions * lanes, np.int8)
    padded[: len(weights)] = weights
    return padded.reshape(positions, lanes)


def unplace(words: Int8, hardware: Pattern, stages: int) -> tuple[list[Int8], list[Int8]]:
    """The weights that hardware reads in words, of the stages whose pairs are nearer than ``2**stages``.

    Parameters
    ----------
    words : int8[positions, columns, lanes]
        As :func:`place` makes them, for this many stages; further columns are ignored.
    hardware : Pattern
    stages : int

    Returns
    -------
    own, cross : list of int8[2**stages]
        For each of those stages, in the hardware's order.
    """
    lanes, width = words.shape[2], 1 << stages
    unit = np.full(width, UNIT_WEIGHT, np.int8)
    own, cross = [unit] * hardware.stages, [unit] * hardware.stages
    for column, (index, is_own, order) in enumerate(_columns(hardware, lanes)):
        (own if is_own else cross)[index] = words[:, column, order].reshape(-1)[:width]
    used = [index for index, distance in enumerate(hardware.distances) if distance < width]
    return [own[index] for index in used], [cross[index] for index in used]
