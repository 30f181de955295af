"""How a butterfly's weights lie in the words that hardware for a greater one reads.

Hardware for a pattern runs every function whose stages are among its own, in their order: the other stages pass values
on, with partners' weights of zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .butterfly import Density, Pattern
from .convolution import Int8
from .fpc import UNIT_WEIGHT, Stages


@dataclass(frozen=True, eq=False)
class Placed:
    """A function on hardware for a pattern.

    Attributes
    ----------
    words : int8[positions, columns, lanes]
        Of weights, for each word of a pixel. Every stage of the hardware has a column for each trained weight, own ones
        first. A partner within the word is multiplied in its own lane.
    halves, works, skips : int
        Bits, the first stage's (skip's) lowest: see :class:`~lutterfly.hdl.butterfly.butterfly.Butterfly`.
    """

    words: Int8
    halves: int
    works: int
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
    positions = max(stages.pattern.width // lanes, 1)
    columns, halves, works = [], 0, 0
    for index, (distance, density) in enumerate(zip(hardware.distances, hardware.densities, strict=True)):
        stage = of_stage.get(index)
        if stage is None:
            own, cross = (np.full(stages.pattern.width, weight, np.int8) for weight in (UNIT_WEIGHT, 0))
        else:
            own, cross = stages.own[stage], stages.cross[stage]
            halves |= stages.growth_shifts[stage] << index
            works |= 1 << index
        exchange = distance if distance < lanes else 0
        if density.trains_own:
            columns.append(_words(own, positions, lanes))
        if density.trains_cross:
            columns.append(_words(cross, positions, lanes)[:, np.arange(lanes) ^ exchange])
    skips = sum(1 << hardware.skips.index(skip) for skip in _skips_on(stages.pattern, hardware, of_stage))
    words = np.stack(columns, axis=1) if columns else np.zeros((positions, 0, lanes), np.int8)
    return Placed(words, halves, works, skips)


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
        As :func:`place` makes them, of so many stages; further columns do not count.
    hardware : Pattern
    stages : int

    Returns
    -------
    own, cross : list of int8[2**stages]
        For each of those stages, in the hardware's order.
    """
    lanes, width = words.shape[2], 1 << stages
    own, cross, column = list[Int8](), list[Int8](), 0
    unit = np.full(width, UNIT_WEIGHT, np.int8)
    for distance, density in zip(hardware.distances, hardware.densities, strict=True):
        exchange = distance if distance < lanes else 0
        of_stage = [unit, unit]
        if density.trains_own:
            of_stage[0] = words[:, column].reshape(-1)[:width]
            column += 1
        if density.trains_cross:
            of_stage[1] = words[:, column, np.arange(lanes) ^ exchange].reshape(-1)[:width]
            column += 1
        if distance < width:
            own.append(of_stage[0])
            cross.append(of_stage[1])
    return own, cross
