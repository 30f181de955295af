# amaranth: UnusedElaboratable=no
"""The next command: legal where golden.compute says so, whether it waits, and the steps that begin its windows."""

from __future__ import annotations

import dataclasses
import os

import cocotb
import numpy as np
import pytest

from cocotb_tests.support.benches.clocking import cycle, start
from cocotb_tests.support.benches.compute_bench import named, payload, random_scenario
from cocotb_tests.support.benches.streams import pack, unpack
from cocotb_tests.support.networks.butterflies import CHAIN_CONFIGS
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import SPECIFICATIONS, find_engine
from lutterfly.golden.machine.compute import check_fields
from lutterfly.golden.machine.flights import CommandError
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.compute.intake import Intake, Position
from lutterfly.hdl.engines.engine import most_further
from lutterfly.hdl.parts.isa import command_shape

SHAPE = command_shape(isa.COMPUTE)
#: From the cycle in which a command is taken over to the one in which it is judged.
CHECKS = 3
IDLE = {"command__valid": 0, "take": 0, "last_engine": 0}


CONFIGS = {
    **{name: PRESETS[name] for name in ("tiny", "ecp5-85k")},
    "hands over": dataclasses.replace(PRESETS["ecp5-85k"], hands_over=True),
    "chains": CHAIN_CONFIGS["chains"],
}


@pytest.mark.parametrize("name", sweep(CONFIGS, kept=("chains",)))
def test_takes_commands(simulate, name: str) -> None:
    simulate(Intake(CONFIGS[name]), env={"CONFIG": name})


async def offer(dut, command: dict[str, int]) -> None:
    """Offer a command until it has been judged."""
    word = pack({"index": 0, **payload(command)}, SHAPE)
    (ready,) = await cycle(dut, {"command__valid": 1, "command__payload": word, "take": 0}, "command__ready")
    assert ready == 1
    for _ in range(CHECKS - 1):
        outputs = await cycle(dut, {"command__valid": 0}, "command__ready", "ready", "illegal")
        assert outputs == [0, 0, 0]


def first_step(command: dict[str, int], skip: int) -> dict[str, int]:
    """The first step of a window that leaves out some."""
    steps = command["steps"] - skip
    words = SPECIFICATIONS[command["engine"]].issue.weight_words
    takes_weight = words in (None, "steps") or steps <= command[words]
    first = {"entry": command["list"] + skip, "steps_left": steps - 1, "last": int(steps == 1)}
    return first | {"takes_weight": int(takes_weight)}


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def every_command(dut) -> None:
    """One after the other, each taken some cycles after it is ready."""
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(7)
    commands = random_scenario(config, rng, 150).commands
    has_further = most_further(config) > 0
    await start(dut, IDLE | {"last_further": 0} if has_further else IDLE)
    last_engine, last_further, early = 0, 0, 0
    for number, command in enumerate(commands):
        await offer(dut, command)
        for _ in range(int(rng.integers(3))):
            assert await cycle(dut, {}, "ready", "command__ready") == [1, 0]
        names = ("ready", "illegal", "waits", "beginning", "continuation", "offered")
        if config.hands_over:
            names += ("changes",)
        ready, illegal, waits, beginning, continuation, offered, *changes = await cycle(dut, {"take": 1}, *names)
        assert (ready, illegal) == (1, 0), number
        issue, is_early = SPECIFICATIONS[command["engine"]].issue, command["steps"] <= last_further
        is_other, early = command["engine"] != last_engine, early + is_early
        expected = is_other or issue.is_burst or is_early
        assert waits == (command["after"] or (not config.hands_over and expected)), number
        assert changes == [expected] * config.hands_over, number
        assert unpack(beginning, Position) == first_step(command, 0)
        assert unpack(continuation, Position) == first_step(command, command["skip"])
        assert offered == pack({"index": 0, **payload(command)}, SHAPE)
        last_engine = command["engine"]
        dut.last_engine.value = last_engine
        # Any number, as the next command of the engine alone decides whether it is too early.
        if has_further:
            last_further = int(rng.integers(most_further(config), endpoint=True))
            dut.last_further.value = last_further
        dut.take.value = 0
    assert not has_further or 10 < early < len(commands) - 10


def changed(command: dict[str, int], config: Config, rng: np.random.Generator) -> dict[str, int]:
    """A command with another value in one field: the least ones, the last that may be legal, or any."""
    fields = {field.name: field for field in find_engine(command["engine"]).format.fields if field.lsb >= 32}
    names = (
        "outer",
        "steps",
        "lanes",
        "last_lanes",
        "list",
        "table",
        "skip",
        "tile_inner",
        "packed",
        "inner",
        "middle",
    )
    engine = find_engine(command["engine"])
    own = [field.name for field in config.engines.fields(engine)]
    name = str(rng.choice([*names, *own]))
    low, high = fields[name].limits
    edges = {"list": config.memory.list_entries - command["steps"], "table": config.memory.tables}
    near = edges.get(name, config.array.lanes) + int(rng.integers(-1, 2))
    choices = [0, 1, near, command[name] + 1, int(rng.integers(low, high + 1))]
    return command | {name: int(np.clip(choices[int(rng.integers(len(choices)))], low, high))}


def is_legal(command: dict[str, int], config: Config) -> bool:
    try:
        check_fields(named(command), config)
    except CommandError:
        return False
    return True


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def what_is_illegal_stays(dut) -> None:
    config, rng = CONFIGS[os.environ["CONFIG"]], np.random.default_rng(8)
    commands = [changed(one, config, rng) for _ in range(8) for one in random_scenario(config, rng, 100).commands]
    await start(dut, IDLE)
    verdicts = []
    for command in commands:
        await offer(dut, command)
        legal = is_legal(command, config)
        assert await cycle(dut, {"rst": 1}, "ready", "illegal") == [legal, not legal], command
        dut.rst.value = 0
        verdicts.append(legal)
    assert min(verdicts.count(False), verdicts.count(True)) > 60
