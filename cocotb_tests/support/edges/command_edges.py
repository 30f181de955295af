"""Limits of what the issue looks at before the first step of a COMPUTE command."""

from __future__ import annotations

from collections.abc import Iterator

from cocotb_tests.support.edges.case import (
    Case,
    compute_case,
    engine_fields,
    mac_fields,
    pair,
)
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import ADD, DEPTHWISE, MAC, MAXIMUM
from lutterfly.golden.machine.write_back import packs


def counts(config: Config) -> Iterator[Case]:
    """Loops, steps, lanes, lists and tables."""
    mac = mac_fields(config)
    for name in ("outer", "middle", "inner", "steps", "last_lanes"):
        yield from pair(
            name, 1, 0, lambda text, legal, value, name=name: compute_case(text, legal, **mac | {name: value})
        )
    yield compute_case("lanes 0", False, **mac | {"lanes": 0, "last_lanes": 0})
    limits = {MAC: config.array.columns} | dict.fromkeys((MAXIMUM, DEPTHWISE, ADD), config.array.lanes)
    for engine, limit in limits.items():
        if engine not in config.engines:
            continue
        fields, entries = engine_fields(config, engine)
        for lanes in (limit, limit + 1):
            yield compute_case(f"{engine.name} lanes {lanes}", lanes == limit, entries, **fields | {"lanes": lanes})
        last = max(1, limit - 1)
        for lanes in (last, last + 1):
            yield compute_case(
                f"{engine.name} last_lanes {lanes} of {last}",
                lanes == last,
                entries,
                **fields | {"lanes": last, "last_lanes": lanes},
            )
    # There is no result to wait for then.
    for name, flags in (("fire", isa.LIST_CLEAR), ("flags", 0)):
        yield compute_case(f"a list without {name}", False, {8: flags}, **mac | {"list": 8})
    entries, tables = config.memory.list_entries, config.memory.tables
    for first in (entries - 1, entries):
        if first < 1 << 12:
            yield compute_case(f"list {first}", first < entries, **mac | {"list": first})
    lists = {entries - 2: isa.LIST_CLEAR, entries - 1: isa.LIST_FIRE}
    for first in (entries - 2, entries - 1):
        yield compute_case(f"list {first} of 2 steps", first == entries - 2, lists, **mac | {"list": first, "steps": 2})
    for table in (tables - 1, tables):
        for enable in (0, 1):
            yield compute_case(
                f"table {table}, table_enable {enable}",
                table < tables,
                **mac | {"table": table, "table_enable": enable},
            )


def engines(config: Config) -> Iterator[Case]:
    """Conditions that one engine has."""
    for engine in (MAC, MAXIMUM, ADD):
        if engine in config.engines:
            fields, entries = engine_fields(config, engine)
            for skip in (0, 1):
                yield compute_case(f"{engine.name} skip {skip}", not skip, entries, **fields | {"skip": skip})
    if ADD in config.engines:
        fields, entries = engine_fields(config, ADD)
        for steps in (1, 2, 3):
            yield compute_case(f"ADD steps {steps}", steps == 2, entries, **fields | {"steps": steps})
        pairs = config.engines[ADD].tables
        for pair in (pairs - 1, pairs):
            if pair < 1 << 4:
                yield compute_case(f"add_table {pair}", pair < pairs, entries, **fields | {"add_table": pair})
    if DEPTHWISE in config.engines:
        yield from _depthwise(config)
    yield from _packing(config)


def _packing(config: Config) -> Iterator[Case]:
    """Results as bits: where there are engines of binary values; a byte collects those of an inner loop."""
    columns, fields = config.array.columns, mac_fields(config) | {"packed": 1}
    for inner in (0, 1):
        legal = packs(config) and (bool(inner) or columns >= 8)
        yield compute_case(f"packed, tile_inner {inner}", legal, **fields | {"tile_inner": inner})


def _depthwise(config: Config) -> Iterator[Case]:
    fields, entries = engine_fields(config, DEPTHWISE)
    for inner in (0, 1):
        yield compute_case(f"DEPTHWISE tile_inner {inner}", not inner, entries, **fields | {"tile_inner": inner})
    for rows in (0, 1, 2):
        yield compute_case(f"DEPTHWISE rows {rows} of 1 step", rows == 1, entries, **fields | {"rows": rows})
    # A list of many steps, summed up in its last ones.
    steps, start = 33, 31
    long = {8 + at: 0 for at in range(steps)} | {8 + start: isa.LIST_CLEAR, 8 + steps - 1: isa.LIST_FIRE}
    for rows, skip in ((2, 31), (2, 32), (31, 2), (31, 3)):
        yield compute_case(
            f"DEPTHWISE skip {skip} and rows {rows} of {steps} steps",
            skip + rows == steps,
            long,
            **fields | {"steps": steps, "rows": rows, "skip": skip, "inner": 2, "destination_inner": 1},
        )
