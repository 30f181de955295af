"""The engine FPC: fast pointwise convolution by a butterfly on a pixel's channels, see
:mod:`lutterfly.golden.numerics.fpc`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config_parts import ArrayConfig
from ..isa import place_fields
from ..numerics.butterfly import Density, Pattern, pixel_words
from ..numerics.fpc import FpcEpilogue, Stages, enter, run_stages, shift_values, unplace
from ..records import check, check_integers, is_power_of_two
from .engine import Engine, EngineConfig, OwnMemory
from .mac import MULTIPLIER_LATENCY
from .specification import (
    REQUANTISE,
    Command,
    EngineSpecification,
    Epilogue,
    Int8,
    Int16,
    Int32,
    Issue,
    RandomWindow,
    TileWindows,
)

if TYPE_CHECKING:
    from ..config import Config

FIELDS = place_fields(
    ("stages", 4, "The stages of pairs nearer than `2 ** stages` work; the others pass values on."),
    ("channels", 9, "Codes of a window; what is read after them counts as zero."),
    ("input_zero_point", -8, "Subtracted from every code."),
    ("input_shift", 3, "Bits by which the differences are shifted to the left."),
    ("halves", 9, "The stages that divide by two, a bit each, the first stage's lowest."),
    ("own_weight", 8, "First word of the columns of weights that the weight memory has not."),
    ("direct", 1, "1: results are shifted, all lanes at a time; parameters are biases of 16 bits."),
    ("shift", 3, "Bits by which direct results are shifted to the right."),
    ("skips", 4, "The skips of the configuration that add, a bit each, the first one's lowest."),
)


# The configuration of FPC is the largest butterfly, see :mod:`lutterfly.golden.numerics.butterfly`.

#: Number of skip connections that a command has bits for.
_MOST_SKIPS = next(field.width for field in FIELDS if field.name == "skips")


@dataclass(frozen=True, slots=True)
class FpcConfig(EngineConfig):
    """The configuration of FPC.

    Attributes
    ----------
    width : int
        Most channels, a power of two.
    direction : str
        ``"bottom-up"`` or ``"top-down"``.
    densities : tuple of str
        Density of each stage; empty for those that belong to the direction.
    skips : tuple of (int, int)
        The skip connections that a function may have.
    own_words : int
        Words of a memory for columns of weights beyond those of the weight memory, if there are any.
    """

    width: int = 128
    direction: str = "bottom-up"
    densities: tuple[str, ...] = ()
    skips: tuple[tuple[int, int], ...] = ()
    own_words: int = 64

    def __post_init__(self) -> None:
        check_integers(self, "width", "own_words")
        check(is_power_of_two(self.own_words), "own_words", "a power of two", self.own_words)
        check(self.own_words <= 256, "own_words", "at most 256", self.own_words)
        check(is_power_of_two(self.width), "width", "a power of two", self.width)
        check(2 <= self.width <= 256, "width", "between 2 and 256", self.width)
        check(len(self.skips) <= _MOST_SKIPS, "skips", f"at most {_MOST_SKIPS}", len(self.skips))
        # The pattern refuses directions, densities and skips that do not fit the width.
        _ = self.pattern

    @property
    def pattern(self) -> Pattern:
        """The pattern of the butterfly."""
        return Pattern.of(self.width, self.width, self.direction, self.densities or None, self.skips)

    @property
    def columns(self) -> int:
        """The number of columns of weights: one for each weight of a value."""
        return self.pattern.weights // self.width

    def own_columns(self, array: ArrayConfig) -> int:
        """Return the columns of weights beyond those of the weight memory, each with multipliers of its own."""
        return max(self.columns - array.columns, 0)

    def own_word_bytes(self, array: ArrayConfig) -> int:
        """Return the bytes of a word of these columns, ``lanes`` weights for each, rounded up to a power of two."""
        return array.lanes << max(self.own_columns(array) - 1, 0).bit_length()


# The memory of FPC holds the columns of weights beyond those of the weight memory.


def _size_bytes(config: Config, own: FpcConfig) -> int:
    return own.own_words * own.own_word_bytes(config.array) if own.own_columns(config.array) else 0


FPC_WEIGHT = OwnMemory(
    "FPC_WEIGHT",
    "FPC weight memory",
    write_bytes=lambda lanes: lanes,
    unit_bytes=lambda config, own: own.own_word_bytes(config.array),
    size_bytes=_size_bytes,
)


FPC = Engine(4, "FPC", configuration=FpcConfig, fields=FIELDS, memory=FPC_WEIGHT)


# A fast pointwise convolution computes the stages of a butterfly on the channels of a pixel.

#: Cycles from codes to values in the first stage: a register, subtract, shift.
ENTRY_LATENCY = 3
#: Cycles from the terms of a stage to the sum that a skip is added to: add, round.
ROUND_LATENCY = 2


def stage_latency(distance: int, density: Density, lanes: int, *, has_skip: bool) -> int:
    """Return the cycles of a stage: find the pair, multiply, add two products, add and round, add a skip, saturate."""
    multiply = MULTIPLIER_LATENCY + 2 * density.trains_own if density.trains_cross else 0
    return distance // lanes + multiply + ROUND_LATENCY + has_skip + 1


def positions(stages: int, lanes: int) -> int:
    """Return the words of a window with so many stages."""
    return pixel_words(1 << stages, lanes)


def _totals(tile: TileWindows) -> Int32:
    command, hardware = tile.command, tile.config.engines[FPC].pattern
    width, lanes = 1 << command["stages"], tile.config.array.lanes
    used = [index for index, distance in enumerate(hardware.distances) if distance < width]
    own, cross = unplace(_weight_columns(tile), hardware, command["stages"])
    pattern = Pattern(
        command["channels"],
        width,
        tuple(hardware.distances[index] for index in used),
        tuple(hardware.densities[index] for index in used),
        tuple(
            (used.index(first), used.index(last))
            for bit, (first, last) in enumerate(hardware.skips)
            if command["skips"] >> bit & 1
        ),
    )
    halves = tuple(command["halves"] >> index & 1 for index in used)
    stages = Stages(pattern, tuple(own), tuple(cross), halves, command["input_shift"])
    codes = tile.words.reshape(*tile.words.shape[:-2], -1)[..., : command["channels"]]
    values = run_stages(enter(codes, command["input_zero_point"], stages), stages)
    results = np.zeros((*values.shape[:-1], max(width, lanes)), np.int32)
    results[..., :width] = values
    return results


def _weight_columns(tile: TileWindows) -> Int8:
    """Return the weight words of a tile with the columns of the engine's own memory: int8[steps, columns, lanes]."""
    config, first = tile.config, tile.command["own_weight"]
    if not config.engines[FPC].own_columns(config.array):
        return tile.weights
    assert FPC.memory is not None, "it has a memory for them"
    own = tile.memories[FPC.memory].view(np.int8).reshape(config.engines[FPC].own_words, -1)
    words = own[first : first + len(tile.weights)].reshape(len(tile.weights), -1, config.array.lanes)
    return np.concatenate([tile.weights, words], axis=1)


def _shift(totals: Int32, biases: Int16, command: Command) -> Int8:
    scale = np.full(biases.shape, 2.0 ** -command["shift"], np.float32)
    epilogue = FpcEpilogue(biases, scale, command["zero_point"], command["low"], command["high"])
    return shift_values(totals.astype(np.int16), epilogue)


#: This epilogue shifts values and needs no multiplier.
SHIFT = Epilogue(name="shift", codes=_shift, chosen=lambda command: command["direct"], is_whole=True, fields=("shift",))


def _latency(config: Config, command: Command) -> int:
    pattern, lanes = config.engines[FPC].pattern, config.array.lanes
    return ENTRY_LATENCY + sum(
        stage_latency(distance, density, lanes, has_skip=any(last == stage for _, last in pattern.skips))
        for stage, (distance, density) in enumerate(zip(pattern.distances, pattern.densities, strict=True))
    )


def _conditions(command: Any, config: Config) -> list[Any]:
    return [
        ~command["tile_inner"],
        ~command["skip"].any(),
        command["channels"].any(),
        command["last_lanes"] == command["lanes"],
        *(_within_own_memory(command, config) if config.engines[FPC].own_columns(config.array) else ()),
        reduce(or_, [_is_of(stages, command, config) for stages in range(1, config.engines[FPC].pattern.stages + 1)]),
    ]


def _within_own_memory(command: Any, config: Config) -> list[Any]:
    """Return the conditions of a command that reads the engine's own memory: one tile, and words that exist."""
    return [command["outer"] == 1, command["own_weight"] + command["steps"] <= config.engines[FPC].own_words]


def _is_of(stages: int, command: Any, config: Config) -> Any:
    """Return whether a command has so many stages, and all its fields suit them."""
    halves, skips = usable(stages, config)
    return reduce(
        and_,
        [
            command["stages"] == stages,
            command["steps"] == positions(stages, config.array.lanes),
            command["channels"] <= 1 << stages,
            command["lanes"] <= 1 << stages,
            ~(command["halves"] & ~halves).any(),
            ~(command["skips"] & ~skips).any(),
        ],
    )


def _read_steps(command: Any, config: Config) -> Any:
    """Return the number of words that hold channels."""
    lanes = config.array.lanes
    return (command["channels"] + (lanes - 1)) >> (lanes.bit_length() - 1)


def usable(stages: int, config: Config) -> tuple[int, int]:
    """Return the bits of the fields ``halves`` and ``skips`` that a command with so many stages may set."""
    pattern = config.engines[FPC].pattern
    is_used = [distance < 1 << stages for distance in pattern.distances]
    halves = sum(1 << index for index, used in enumerate(is_used) if used)
    skips = sum(1 << bit for bit, ends in enumerate(pattern.skips) if all(is_used[end] for end in ends))
    return halves, skips


def _random_window(config: Config, rng: np.random.Generator, size: int) -> RandomWindow:
    lanes = config.array.lanes
    most = max(
        stages for stages in range(1, config.engines[FPC].pattern.stages + 1) if positions(stages, lanes) <= size
    )
    stages = int(rng.integers(1, most + 1))
    halves, skips = usable(stages, config)
    results = int(rng.integers(1, 1 + (1 << stages)))
    fields = {
        "steps": positions(stages, lanes),
        "stages": stages,
        "channels": int(rng.integers(1, 1 + (1 << stages))),
        "input_zero_point": int(rng.integers(-128, 128)),
        "input_shift": int(rng.integers(8)),
        "halves": int(rng.integers(512)) & halves,
        "skips": int(rng.integers(16)) & skips,
        "direct": (direct := int(SHIFT.is_built(config) and rng.integers(2))),
        **({"table_enable": 0} if direct else {}),
        "own_weight": int(rng.integers(1 + config.engines[FPC].own_words - positions(stages, lanes))),
        **({"outer": 1} if config.engines[FPC].own_columns(config.array) else {}),
        "tile_inner": 0,
        "lanes": results,
        "last_lanes": results,
    }
    return RandomWindow(fields)


SPECIFICATION = EngineSpecification(
    engine=FPC,
    notes="Gives a pixel's channels after the `stages` of a butterfly, those of pairs nearer than `2 ** stages`. A "
    "window is a pixel: `steps` is `2 ** stages / LANES`, at least 1; those after the channels read nothing, and "
    "every step takes one weight word "
    "(`weight_words` is `steps`), a column for each weight of a value: stage by stage own weights where they are "
    "trained, then partners' weights where those are, a partner within the word in its own lane; columns that the "
    "weight memory has not come from FPC_WEIGHT, from the word `own_weight` on, and `outer` is 1 then. Channels, "
    "results, `halves` and `skips` beyond the stages that are used, `last_lanes` other than `lanes`, `skip`, "
    "`tile_inner`, and `direct` with `table_enable` or with parameter words of fewer than 2 bytes for each lane are "
    "illegal.",
    results="width",
    totals=_totals,
    latency=_latency,
    random_window=_random_window,
    conditions=_conditions,
    issue=Issue(
        weight_words="steps",
        read_steps=_read_steps,
        is_burst=True,
        fields=("stages", "channels", "input_zero_point", "input_shift", "halves", "skips", "lanes", "own_weight"),
    ),
    epilogues=(SHIFT, REQUANTISE),
    borrowed_columns=lambda config: config.engines[FPC].columns - config.engines[FPC].own_columns(config.array),
)
