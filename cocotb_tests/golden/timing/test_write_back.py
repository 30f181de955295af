"""What a program may rely on: whatever is delayed, no step that comes late enough reads before a result has landed."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from cocotb_tests.support.networks.mixed.configurations import CONFIGS as MIXED
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import ADD, DEPTHWISE, FPC, MAC, MAXIMUM, SPECIFICATIONS, EngineConfigs
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.isa import COMPUTE
from lutterfly.golden.machine.write_back import WriteBacks
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import backlog_limit, epilogue_latency, result_latency
from lutterfly.golden.timing.write_back import Timeline, lead

TINY = PRESETS["tiny"]
CONFIGS = {
    "tiny": TINY,
    "tiny, hands over": dataclasses.replace(TINY, hands_over=True),
    "large": PRESETS["large"],
    "rows": MIXED["rows"],
    # Bursts of up to eight results, of a group each if they are finished in whole.
    "bursts, hand over": dataclasses.replace(
        TINY,
        array=ArrayConfig(lanes=4, columns=4, requant_lanes=2),
        engines=EngineConfigs.of(MAC, MAXIMUM, ADD, DEPTHWISE, FPC, FPC=FpcConfig(32)),
        hands_over=True,
    ),
}


def command(engine: int, **fields: int) -> dict[str, int]:
    """A legal command, of one window of one step if nothing else is said."""
    names = [field.name for field in (*COMPUTE.fields, *DEPTHWISE.fields)]
    counts = dict.fromkeys(("outer", "middle", "inner", "steps", "lanes", "last_lanes"), 1)
    return dict.fromkeys(names, 0) | counts | {"engine": engine} | fields


def drawn(config: Config, rng: np.random.Generator) -> dict[str, int]:
    chains = config.engines[DEPTHWISE].chains
    engine = int(rng.choice([MAC, MAXIMUM, ADD, *[DEPTHWISE] * (chains > 1), *[FPC] * (FPC in config.engines)]))
    if engine == FPC:
        counts = {name: int(rng.integers(1, 6)) for name in ("middle", "inner")}
        return command(FPC, **counts) | SPECIFICATIONS[FPC].random_window(config, rng, 8).fields
    most = config.array.columns if engine == MAC else config.array.lanes
    lanes = int(rng.integers(1, most + 1))
    loops = dict(zip(("outer", "middle", "inner"), (int(n) for n in rng.integers(1, 6, 3)), strict=True))
    steps, last = 2 if engine == ADD else int(rng.integers(1, 5)), int(rng.integers(1, lanes + 1))
    fields = command(engine, lanes=lanes, last_lanes=last, steps=steps, tile_inner=int(rng.integers(2)), **loops)
    if engine == DEPTHWISE:
        fields |= {"tile_inner": 0, "further": int(rng.integers(min(steps, chains)))}
    return fields


def groups_of(config: Config, fields: dict[str, int]) -> list[int]:
    """Groups of the results of each window, in the order of issue."""
    at_once = config.array.lanes if fields.get("direct") else config.array.requant_lanes
    found = []
    for i, _, k in itertools.product(*(range(fields[name]) for name in ("outer", "middle", "inner"))):
        tile, tiles = (k, fields["inner"]) if fields["tile_inner"] else (i, fields["outer"])
        lanes = fields["lanes"] if tile < tiles - 1 else fields["last_lanes"]
        found.append(-(-lanes // at_once) * (1 + fields["further"]))
    return found


def played(
    config: Config, commands: list[tuple[dict[str, int], bool]], rng: np.random.Generator, p_stall: float
) -> tuple[list[list[list[int]]], list[list[int]]]:
    """Cycle by cycle, as the gate counts: of each command and window the cycles of the steps, and of the landing."""
    issues, landings = [], []
    now, backlog, landed, before = 0, 0, 0, None
    for fields, after in commands:
        ahead = None if before is None else lead(config, fields, before, after=after)
        before, engine, latency = fields, fields["engine"], result_latency(config, fields)
        is_burst = engine == FPC
        issues.append([])
        landings.append([])
        for number, groups in enumerate(groups_of(config, fields)):
            steps: list[int] = []
            while len(steps) < fields["steps"]:
                waits = not number and not steps and ahead is not None and now < landed - ahead
                counts = not steps if is_burst else len(steps) == fields["steps"] - 1
                backlog_before = backlog
                backlog = max(backlog - 1, 0)
                if (
                    not waits
                    and not (counts and backlog_before > backlog_limit(config, engine))
                    and (rng.random() >= p_stall or (is_burst and steps))
                ):
                    steps.append(now)
                    if counts:
                        backlog += groups + (number == 0)
                        landed = now + latency + backlog - 1
                now += 1
            issues[-1].append(steps)
            landings[-1].append(landed)
    return issues, landings


@pytest.mark.sampled(41)
@pytest.mark.parametrize("p_stall", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_late_enough_stays_so_whatever_is_delayed(name: str, seed: int, p_stall: float) -> None:
    config, rng = CONFIGS[name], np.random.default_rng(seed)
    commands = [(drawn(config, rng), bool(rng.random() < 0.2)) for _ in range(12)]
    issues, landings = played(config, commands, rng, p_stall)
    timeline, known, compared = Timeline(config), [], 0
    for index, (fields, after) in enumerate(commands):
        issued = timeline.foresee(fields, after=after)
        for number, begin in issued.first_windows(issued.begin + 300):
            for step, now in enumerate(issues[index][number]):
                # What has landed here has landed there.
                late = [played_landing for landing, played_landing in known if landing <= begin + step]
                assert now >= max(late, default=0), (index, number, step)
                compared += bool(late)
        timeline.issue(fields, issued)
        # Those that are left out have landed when the command ends.
        own = dict(issued.last_windows())
        known += [(own.get(number, issued.end), landing) for number, landing in enumerate(landings[index])]
        if not p_stall:
            assert next(issued.first_windows(issued.end)) == (0, issues[index][0][0])
            assert issued.end == issues[index][-1][-1] + 1
            assert issued.written_back == landings[index][-1]
            assert own == {number: now for number, now in enumerate(landings[index]) if now > issued.end}
    assert compared > 100


def test_a_command_waits_for_after_for_another_engine_and_for_bursts() -> None:
    config, epilogue = PRESETS["ecp5-85k"], epilogue_latency(PRESETS["ecp5-85k"])
    over = dataclasses.replace(config, hands_over=True)
    same, other, burst = command(MAC), command(ADD), command(FPC)
    for one in (config, over):
        assert lead(one, same, same, after=False) is None
        assert lead(one, same, same, after=True) == 0
        assert lead(one, other, same, after=True) == lead(one, burst, burst, after=True) == 0
    for one, before in ((other, same), (burst, burst), (burst, same), (same, burst)):
        assert lead(config, one, before, after=False) == 0
        assert lead(over, one, before, after=False) == epilogue
    assert 0 < epilogue < result_latency(over, same)


@pytest.mark.parametrize("further", range(5))
def test_a_command_waits_for_the_chains_of_the_one_before_where_its_first_result_would_come_among_theirs(
    further: int,
) -> None:
    config = PRESETS["gw5a-138"]
    chains = command(DEPTHWISE, steps=9, further=further)
    for steps in range(1, 8):
        ahead = lead(config, command(DEPTHWISE, steps=steps), chains, after=False)
        assert ahead == (None if steps > further else epilogue_latency(config))


def test_bytes_land_with_their_window() -> None:
    write_backs = WriteBacks(TINY)
    writer = command(MAXIMUM, inner=20, steps=4, lanes=4, last_lanes=4, destination=100, destination_inner=4)
    issued, early = write_backs.foresee(writer, after=False)
    assert early.readable_from is None
    write_backs.issue(writer, issued)
    reader = command(MAXIMUM, inner=90)
    issued, early = write_backs.foresee(reader, after=False)
    assert early.readable_from is not None
    assert (np.diff(early.readable_from[100:180].reshape(-1, 4), axis=1) == 0).all()
    under_way = early.readable_from[100:180:4][early.readable_from[100:180:4] > issued.begin]
    assert len(under_way) > 5
    assert (np.diff(under_way) == 4).all()
    # One window each cycle: the first that may read all is the one after these.
    assert under_way[-1] == issued.begin + len(early.windows)
    assert (early.readable_from[:100] < issued.begin).all()
    assert (early.readable_from[180:] < issued.begin).all()
    # One that waits finds nothing under way.
    assert write_backs.foresee(reader, after=True)[1].readable_from is None
    # Each word of four bytes, a cycle before it may be read and then.
    words = 180 - 4 * np.arange(len(under_way), 0, -1)[:, None] + np.arange(4)
    assert early.too_early(words, early.readable_from[words[:, 0]] - 1).all()
    assert not early.too_early(words, early.readable_from[words[:, 0]]).any()


def test_steps_that_a_window_leaves_out_read_nothing_too_early() -> None:
    write_backs = WriteBacks(TINY)
    writer = command(MAXIMUM, inner=20, steps=2)
    write_backs.issue(writer, write_backs.foresee(writer, after=False)[0])
    reader = command(MAXIMUM, middle=2, inner=3, steps=4, skip=3)
    issued, early = write_backs.foresee(reader, after=False)
    cycles = early.cycles(reader, np.arange(6).reshape(2, 3))
    begin, late = issued.begin, np.iinfo(np.int64).max
    assert cycles[0].tolist() == [
        [begin, begin + 1, begin + 2, begin + 3],
        [late, late, late, begin + 4],
        [late, late, late, begin + 5],
    ]
    assert cycles[1, 0].tolist() == [begin + 6 + step for step in range(4)]
