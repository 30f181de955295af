"""The groups of results of a COMPUTE command, as golden.windows tells them: settings, parameter word and place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lutterfly.golden.config import Config
from lutterfly.golden.engines import SPECIFICATIONS, find_engine
from lutterfly.golden.numerics import windows
from lutterfly.hdl.engines import COMPONENTS
from lutterfly.hdl.engines.engine import built_epilogues, epilogue_fields, epilogue_flag

_SETTINGS = ("zero_point", "low", "high", "table_enable", "table")


@dataclass(frozen=True)
class Group:
    """One group, in the order in which they are finished.

    Attributes
    ----------
    window : int
        Of its command.
    result : int
        Of its window, if its engine gives several that are no burst; else 0.
    lane, lanes : int
        The first of its lanes in the result, or in the burst, and how many it has at most.
    is_last : bool
        Of its result, or of its burst.
    word : int
        Its parameter word.
    settings, place : dict
        Fields of ``settings_layout`` and of ``Place``; ``bit`` counts where results are packed.
    """

    window: int
    result: int
    lane: int
    lanes: int
    is_last: bool
    word: int
    settings: dict[str, Any]
    place: dict[str, int]


def has_wide_results(command: dict[str, int]) -> bool:
    """Whether the results of a command have more bits than those of some engines."""
    return not COMPONENTS[command["engine"]].is_narrow


def group_lanes(command: dict[str, int], config: Config) -> int:
    """Lanes of a group."""
    return SPECIFICATIONS[command["engine"]].epilogue_of(command).at_once(config)


def groups_of(number: int, command: dict[str, int], config: Config) -> Iterator[Group]:
    """The groups of a command, the ``number``-th one of its queue."""
    lanes = group_lanes(command, config)
    chosen = SPECIFICATIONS[command["engine"]].epilogue_of(command)
    columns = lanes if chosen.is_whole else config.array.columns
    settings = _settings_of(command, config)
    offsets = np.array(SPECIFICATIONS[command["engine"]].issue.result_offsets(command))
    destinations = (windows.loop_addresses(command, "destination")[..., None] + offsets) % windows.LOCAL_SPACE
    tiles = windows.lane_counts(command)
    per_tile = -(-command["lanes"] // lanes)
    for number_of_result, position in enumerate(np.ndindex(*destinations.shape)):
        window, result = divmod(number_of_result, len(offsets))
        tile = position[windows.tile_axis(command)]
        count = int(tiles[tile])
        for group, lane in enumerate(range(0, count, lanes)):
            piece = lane // columns * columns
            packed, bits = command["packed"], 0
            if packed and columns < 8:
                # Those of the inner loop before.
                bits = position[2] * -(-command["lanes"] // columns) * columns + piece
            is_last = lane + lanes >= count
            place = {
                "valid": 1,
                "write": int(is_last or (lane + lanes) % columns == 0),
                "is_whole": int(chosen.is_whole),
                "finish": int(is_last and number_of_result == destinations.size - 1),
                "slot": lane % columns // lanes,
                "address": int(destinations[position]) + (max(bits, piece) // 8 if packed else piece),
                "packed": packed,
                "bit": bits % 8,
                "count": min(columns, count - piece),
                "index": number,
            }
            word = command["parameter"] + (0 if command["parameter_shared"] else tile * per_tile + group)
            yield Group(window, result, lane, lanes, is_last, word, settings, place)


def _settings_of(command: dict[str, int], config: Config) -> dict[str, Any]:
    """What a command says of all its groups."""
    # Fields of other engines are what they make of the argument.
    formats = {engine.name.lower(): engine.format for engine in config.engines}
    encoded = formats[find_engine(command["engine"]).name.lower()].encode(**command)
    own = epilogue_fields(config.engines)["fields"].members
    chosen = SPECIFICATIONS[command["engine"]].epilogue_of(command)
    return {
        **{name: command[name] for name in _SETTINGS},
        "fields": {
            name: {field: formats[name].decode(encoded)[field] for field in layout.members}
            for name, layout in own.items()
        },
        **{
            epilogue_flag(engine, epilogue): int(command["engine"] == engine.engine and chosen is epilogue)
            for engine, epilogue in built_epilogues(config)
        },
    }
