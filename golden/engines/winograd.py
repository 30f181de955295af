"""The engine WINOGRAD: two neighbouring results of three taps at a time, see
:mod:`lutterfly.golden.numerics.winograd`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa import LOCAL_BITS, place_fields
from ..numerics import winograd as filtering
from .engine import Engine, EngineConfig
from .floorplan import ArrayWaits
from .mac import SPECIFICATION as ARRAY
from .mac import products
from .specification import (
    EngineSpecification,
    FurtherResults,
    Int8,
    Int32,
    Issue,
    RandomWindow,
    TileWindows,
    require_words,
)

if TYPE_CHECKING:
    from ..config import Config


@dataclass(frozen=True, slots=True)
class WinogradConfig(EngineConfig):
    """The configuration of WINOGRAD, which has no fields. The engine works in the array and adds to its latencies."""

    def array_waits(self) -> ArrayWaits:
        """Return the latencies: four cycles in which words of a group meet and are added in front of the array; one
        in which weights are added in front of each column; two for the second total and the choice between both."""
        return ArrayWaits(words=4, weights=1, totals=2)


FIELDS = place_fields(
    ("further", 1, "1: windows have both results; else the first one alone."),
    ("destination_further", -LOCAL_BITS, "Destination pitch of a window's results, in bytes."),
)


WINOGRAD = Engine(8, "WINOGRAD", configuration=WinogradConfig, fields=FIELDS)


#: Most cycles that the results of a window may take. With as few, and fewer than the window has steps, results that
#: wait never hold a step back, so that the words of a group come in successive cycles.
MOST_GROUPS = 5


def winograd(words: Int8, weights: Int8) -> Int32:
    """Return both results of all columns.

    Parameters
    ----------
    words : int8[..., steps, lanes]
        Four inputs of each group, in the order of :data:`~lutterfly.golden.numerics.winograd.INPUTS`.
    weights : int8[steps, columns, lanes]
        Four weights of each group, in the order of :data:`~lutterfly.golden.numerics.winograd.TAPS`.

    Returns
    -------
    int32[..., 2, columns]

    Raises
    ------
    TypeError
        If an array is not int8.
    ValueError
        If steps or lanes differ, or steps are no groups.
    """
    words, weights = np.asarray(words), np.asarray(weights)
    require_words(words, weights)
    steps, columns, lanes = weights.shape
    if not steps or steps % filtering.GROUP:
        raise ValueError(f"steps must be a multiple of {filtering.GROUP}, not {steps}")
    inputs = filtering.transform_inputs(words.reshape(*words.shape[:-2], -1, filtering.GROUP, lanes))
    taps = filtering.transform_taps(weights.reshape(-1, filtering.GROUP, columns, lanes))
    # Each of the four products is summed over groups and lanes.
    sums = [products(inputs[..., number, :], taps[:, number]) for number in range(filtering.GROUP)]
    return filtering.outputs(np.stack(sums, axis=-2))


def _totals(windows: TileWindows) -> Int32:
    return winograd(windows.words, windows.weights)[..., : 1 + windows.command["further"], :]


def _most_further(config: Config) -> int:
    return filtering.OUTPUTS - 1


def _conditions(command: Any, config: Config) -> list[Any]:
    """Return the conditions of whole groups of steps, and of results so few that they never hold a step of a group
    back."""
    at_once = config.array.requant_lanes
    one = (command["lanes"] + (at_once - 1)) >> (at_once.bit_length() - 1)
    both = one + one
    return [
        ~(command["steps"] & (filtering.GROUP - 1)).any(),
        (one <= MOST_GROUPS) & (one < command["steps"]),
        ~command["packed"],
        ~command["further"] | (both <= MOST_GROUPS) & (both < command["steps"]),
    ]


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    steps, further = filtering.GROUP * int(rng.integers(1, 1 + max(size // filtering.GROUP, 1))), int(rng.integers(2))
    groups = min(MOST_GROUPS, steps - 1) // (1 + further)
    lanes = int(rng.integers(1, 1 + min(config.array.columns, groups * config.array.requant_lanes)))
    return RandomWindow({"steps": steps, "further": further, "lanes": lanes})


SPECIFICATION = EngineSpecification(
    engine=WINOGRAD,
    notes="Four steps are a group: the words of pixels 0, 2, 1 and 3 beside each other, and taps 0, 2, 1 and 1 of the "
    "three between them as weights. A window has the results of the first three pixels and, with `further`, of the "
    "last three, at a pitch of `destination_further`, of the same parameters. Takes one weight word with every step "
    "(`weight_words` is `steps`). `steps` that are no groups, `packed`, and windows whose results take more than "
    f"{MOST_GROUPS} cycles, or as many as there are steps, are illegal.",
    results="array.columns",
    totals=_totals,
    latency=ARRAY.latency,
    random_window=_random_window,
    conditions=_conditions,
    issue=Issue(
        weight_words="steps",
        further=FurtherResults(count="further", pitch="destination_further", most=_most_further),
        fields=("further",),
    ),
)
