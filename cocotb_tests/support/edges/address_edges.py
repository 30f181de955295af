"""Limits of the addresses of a COMPUTE command: features, results, weights and parameters."""

from __future__ import annotations

from collections.abc import Iterator

from cocotb_tests.support.edges.case import (
    Case,
    compute_case,
    engine_fields,
    mac_fields,
)
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, DEPTHWISE, MAXIMUM, MULTIPLY


def compute_addresses(config: Config) -> Iterator[Case]:
    """What a step reads, and what a result is written to."""
    mac, size = mac_fields(config), config.memory.feature_bytes
    for engine in config.engines:
        fields, entries = engine_fields(config, engine)
        if engine in (ADD, MULTIPLY):
            entries = {8: isa.LIST_CLEAR, 9: isa.LIST_FIRE}
        for source in (size - 1, size, (1 << isa.LOCAL_BITS) - 1):
            yield compute_case(f"{engine.name} source {source}", source < size, entries, **fields | {"source": source})
    for inner in (2, 3):
        yield compute_case(
            f"source of window {inner}", inner == 2, **mac | {"source": size - 2, "source_inner": 1, "inner": inner}
        )
    for start in (1, 0):
        yield compute_case(
            f"source {start} and a pitch of -1", start == 1, **mac | {"source": start, "source_middle": -1, "middle": 2}
        )
    for offset in (size // 2 - 1, size // 2):
        yield compute_case(
            f"source in the middle, offset {offset}",
            offset < size // 2,
            {8: isa.LIST_CLEAR | isa.LIST_FIRE | offset},
            **mac | {"source": size // 2, "list": 8},
        )
    columns, lanes = config.array.columns, config.array.lanes
    for count in (1, columns):
        for at in (size - count, size - count + 1):
            yield compute_case(
                f"{count} results at {at}",
                at + count == size,
                **mac | {"lanes": count, "last_lanes": count, "destination": at},
            )
    if lanes > columns:
        # In pieces of as many bytes as there are columns.
        for at in (size - lanes, size - lanes + 1, size - columns + 1):
            yield compute_case(
                f"{lanes} results at {at}",
                at == size - lanes,
                **mac | {"engine": MAXIMUM, "lanes": lanes, "last_lanes": lanes, "destination": at},
            )
    for at in (1, 0):
        yield compute_case(
            f"result at {at} and a pitch of -1",
            at == 1,
            **mac | {"source": 64, "destination": at, "destination_outer": -1, "outer": 2},
        )
    # The results of the last tile are fewer.
    yield compute_case(
        "the last tile ends with the memory",
        True,
        **mac
        | {
            "lanes": columns,
            "last_lanes": 1,
            "outer": 2,
            "destination_outer": columns,
            "destination": size - columns - 1,
        },
    )


def constants(config: Config) -> Iterator[Case]:
    """Weight words and parameters."""
    mac, words = mac_fields(config), config.weight_words
    two = {8: isa.LIST_CLEAR, 9: isa.LIST_FIRE}
    for weight in (words - 1, words):
        if weight >= 1 << 20:
            continue
        yield compute_case(f"weight {weight}", weight < words, **mac | {"weight": weight})
        yield compute_case(f"weight {weight} of two tiles", False, **mac | {"weight": weight, "outer": 2})
        yield compute_case(
            f"weight {weight} of two steps", False, two, **mac | {"weight": weight, "steps": 2, "list": 8}
        )
        if DEPTHWISE in config.engines:
            fields, entries = engine_fields(config, DEPTHWISE)
            yield compute_case(f"DEPTHWISE weight {weight}", weight < words, entries, **fields | {"weight": weight})
        if MAXIMUM in config.engines:
            fields, entries = engine_fields(config, MAXIMUM)
            yield compute_case(f"MAXIMUM weight {weight}", True, entries, **fields | {"weight": weight})
    yield compute_case("two tiles to the last weight word", True, **mac | {"weight": words - 2, "outer": 2})
    yield compute_case(
        "two steps to the last weight word", True, two, **mac | {"weight": words - 2, "steps": 2, "list": 8}
    )
    parameters, lanes = config.parameter_words, config.array.requant_lanes
    for shared in (0, 1):
        for outer, first in ((1, parameters - 1), (1, parameters), (2, parameters - 2), (2, parameters - 1)):
            last = first if shared else first + outer - 1
            yield compute_case(
                f"parameter {first} of {outer} tiles, parameter_shared {shared}",
                last < parameters,
                **mac | {"parameter": first, "parameter_shared": shared, "outer": outer},
            )
    if config.array.columns > lanes:
        # Two groups.
        for parameter in (parameters - 2, parameters - 1):
            yield compute_case(
                f"parameter {parameter} of two groups",
                parameter == parameters - 2,
                **mac | {"parameter": parameter, "lanes": lanes + 1, "last_lanes": lanes + 1},
            )
