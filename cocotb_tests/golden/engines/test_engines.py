"""Engines and their place in the array: known codes, conditions for integers and Amaranth's values, the floorplan."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from cocotb_tests.support.benches.compute_bench import payload
from cocotb_tests.support.benches.streams import pack
from cocotb_tests.support.networks.butterflies import CHAIN_CONFIGS, FPC_CONFIGS
from lutterfly.golden import isa
from lutterfly.golden.config import Config
from lutterfly.golden.engines import DEPTHWISE, ENGINES, FPC, MAC, SPECIFICATIONS, specification_of
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.floorplan import ArrayWaits, Floorplan
from lutterfly.golden.engines.fpc import SHIFT
from lutterfly.golden.engines.specification import EngineSpecification
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.isa import EngineCommand, command_shape

CONFIG = PRESETS["tiny"]

every_engine = pytest.mark.parametrize("engine", SPECIFICATIONS.values(), ids=lambda engine: engine.name)


def having(engine: EngineSpecification) -> Config:
    """An accelerator that has it: one with a butterfly, if it is that, and one with several chains."""
    if engine.engine is DEPTHWISE:
        return CHAIN_CONFIGS["chains"]
    return CONFIG if engine.engine in CONFIG.engines else FPC_CONFIGS["bottom-up"]


def test_every_code_has_its_specification() -> None:
    assert {code: one.engine for code, one in SPECIFICATIONS.items()} == ENGINES


@pytest.mark.parametrize("code", [9, 15])
def test_an_unknown_engine_is_an_error(code: int) -> None:
    with pytest.raises(ValueError, match=rf"^engine must be one of 0 \(MAC\), .*, 8 \(WINOGRAD\), not {code}$"):
        specification_of(code)


@every_engine
def test_its_random_windows_are_legal(engine: EngineSpecification) -> None:
    rng, config = np.random.default_rng(0), having(engine)
    empty = dict.fromkeys((field.name for field in engine.engine.format.fields), 0)
    for _ in range(200):
        window = engine.random_window(config, rng, 8)
        assert engine.is_legal(empty | window.fields, config)
        assert 0 <= window.sum_start < window.fields["steps"]


@pytest.mark.sampled(6)
@every_engine
def test_conditions_mean_the_same_in_hardware(engine: EngineSpecification) -> None:
    rng, shape, config = np.random.default_rng(1), command_shape(isa.COMPUTE), having(engine)
    module, command, legal = Module(), Signal(shape), Signal()
    module.d.comb += legal.eq(engine.legal(EngineCommand(command, engine.engine), config))
    # Around a legal window, so that each condition is met often and violated often.
    commands = []
    for _ in range(300):
        fields = dict.fromkeys((field.name for field in engine.engine.format.fields if field.lsb >= 32), 0)
        fields |= {"index": 0, "after": 0, "engine": int(engine.engine)} | engine.random_window(config, rng, 8).fields
        for name in ("steps", "skip", "tile_inner", *(field.name for field in engine.engine.fields)):
            if rng.random() < 0.15:
                fields[name] = int(rng.integers(2 if engine.engine.format.field(name).width == 1 else 4))
        commands.append(fields)
    found = []

    async def bench(context) -> None:
        for fields in commands:
            context.set(command.as_value(), pack(payload(fields), shape))
            found.append(bool(context.get(legal)))

    simulator = Simulator(module)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [engine.is_legal(fields, config) for fields in commands]
    assert len(set(found)) == 2


#: Eight channels in two words, and what the engine may be told about them.
BUTTERFLY = {"outer": 1, "stages": 3, "steps": 2, "channels": 8, "lanes": 8, "last_lanes": 8, "skips": 0}


@pytest.mark.parametrize(
    ("name", "changes", "is_legal"),
    [
        ("further", {}, True),
        ("further", {"last_lanes": 7}, False),
        ("further", {"lanes": 7, "last_lanes": 7}, True),
        ("further", {"lanes": 9, "last_lanes": 9}, False),
        ("further", {"channels": 0}, False),
        ("further", {"channels": 9}, False),
        ("further", {"outer": 2}, False),
        ("bottom-up", {"outer": 2}, True),
        ("further", {"own_weight": 14}, True),
        ("further", {"own_weight": 15}, False),
        ("further", {"tile_inner": 1}, False),
        ("further", {"skip": 1}, False),
        ("further", {"steps": 1}, False),
        ("further", {"halves": 0b0111}, True),
        ("further", {"halves": 0b1000}, False),
        ("bottom-up", {"skips": 0b11}, True),
        ("bottom-up", {"skips": 0b100}, False),
        ("bottom-up", {"stages": 2, "steps": 1, "channels": 4, "lanes": 4, "last_lanes": 4, "skips": 0b10}, True),
        ("bottom-up", {"stages": 2, "steps": 1, "channels": 4, "lanes": 4, "last_lanes": 4, "skips": 0b01}, False),
        ("bottom-up", {"direct": 1}, True),
        ("bottom-up", {"packed": 1}, True),
        ("bottom-up", {"direct": 1, "packed": 1}, False),
        ("bottom-up", {"table_enable": 1}, True),
        ("bottom-up", {"direct": 1, "table_enable": 1}, False),
        ("narrow", {"direct": 0, "table_enable": 1}, True),
        ("narrow", {"direct": 1}, False),
    ],
)
def test_what_a_fast_pointwise_command_may_say(name: str, changes: dict[str, int], is_legal: bool) -> None:
    """The last legal value and the first illegal one of each condition."""
    config = FPC_CONFIGS["bottom-up" if name == "narrow" else name]
    if name == "narrow":
        # A word of parameters is 8 bytes for each requantiser lane: too few for 8 biases of 16 bits.
        config = dataclasses.replace(config, array=dataclasses.replace(config.array, lanes=8, requant_lanes=1))
        changes = {"steps": 1, **changes}
    assert SHIFT.is_built(config) is (name != "narrow")
    assert SPECIFICATIONS[FPC].is_legal(BUTTERFLY | changes, config) is is_legal


@pytest.mark.parametrize(("channels", "words"), [(1, 1), (4, 1), (5, 2), (8, 2)])
def test_words_after_the_channels_are_not_read(channels: int, words: int) -> None:
    config, command = FPC_CONFIGS["bottom-up"], BUTTERFLY | {"channels": channels, "stages": 4, "steps": 4}
    assert SPECIFICATIONS[FPC].issue.steps_read(command, config) == words
    assert SPECIFICATIONS[MAC].issue.steps_read(command, config) == 4


# The floorplan of the array: rows, hops, neighbours, and what engines that stand one behind the other wait for.


def test_waits_of_several_engines_add_up() -> None:
    assert ArrayWaits.sum([ArrayWaits(), ArrayWaits(4, 1, 2), ArrayWaits(words=1, totals=3)]) == ArrayWaits(5, 1, 5)


def test_columns_stand_in_rows_of_a_chain() -> None:
    preset = PRESETS["ecp5-85k"]
    alone = Floorplan.of(preset)
    assert (alone.row_columns, alone.hops) == (8, (0, 1, 2, 3, 4, 5, 6, 7))
    of_two = dataclasses.replace(preset, engines=preset.engines.having(DEPTHWISE, DepthwiseConfig(3, chains=2)))
    rows = Floorplan.of(of_two)
    assert (rows.row_columns, rows.hops) == (3, (0, 1, 2, 1, 2, 3, 2, 3))
