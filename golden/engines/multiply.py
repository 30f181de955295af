"""The engine MULTIPLY: products of two operands, each less its zero point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..isa import place_fields
from ..numerics.multiplication import PRODUCT_FRACTION_BITS, products
from .engine import Engine, EngineConfig
from .mac import MULTIPLIER_LATENCY
from .specification import Command, EngineSpecification, Int32, Issue, RandomWindow, TileWindows

if TYPE_CHECKING:
    from ..config import Config

FIELDS = place_fields(
    ("first_zero_point", -8, "What the codes of the first step's words lose."),
    ("second_zero_point", -8, "What the codes of the second step's words lose."),
)


MULTIPLY = Engine(7, "MULTIPLY", configuration=EngineConfig, fields=FIELDS)


# The first operand of the products may be a vector that all windows share.

#: Cycles until the control signals of a step have reached each lane.
SPREAD_LATENCY = 2


def _totals(windows: TileWindows) -> Int32:
    command, words = windows.command, windows.words
    first = words[..., :1, 0, :] if command["skip"] else words[..., 0, :]
    return products(first, words[..., 1, :], command["first_zero_point"], command["second_zero_point"])


def _latency(config: Config, command: Command) -> int:
    """Return the cycles to take the word, pass the step's control signals to all lanes, subtract, multiply, and take
    the product."""
    return 1 + SPREAD_LATENCY + 1 + MULTIPLIER_LATENCY + 1


def _conditions(command: Any, config: Config) -> list[Any]:
    return [command["steps"] == 2, command["skip"] <= 1, ~command["tile_inner"]]


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    skip = int(rng.integers(2))
    points = {f"{name}_zero_point": int(rng.integers(-128, 128)) for name in ("first", "second")}
    return RandomWindow({"steps": 2, "skip": skip, "tile_inner": 0, **points}, int(rng.integers(skip, 2)))


SPECIFICATION = EngineSpecification(
    engine=MULTIPLY,
    notes="Takes two steps, one for each operand, and multiplies their codes less their zero points: a total is the "
    f"product as a multiple of 2**-{PRODUCT_FRACTION_BITS}. With `skip` the first operand is that of the inner loop's "
    "first window for all of them; the flag `clear` may stand at any entry from `skip` on. `steps` other than 2 and "
    "`tile_inner` are illegal.",
    results="array.lanes",
    totals=_totals,
    latency=_latency,
    random_window=_random_window,
    conditions=_conditions,
    issue=Issue(has_streams=True, fields=("first_zero_point", "second_zero_point")),
    borrowed_columns=lambda config: 1,
    brings_weights=True,
)
