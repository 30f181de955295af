"""The table of engines: known codes only, and conditions that say the same of integers and of Amaranth's values."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from lutterfly.golden import isa
from lutterfly.golden.config import PRESETS
from lutterfly.golden.engines import ENGINES, specification
from lutterfly.golden.engines.engine import EngineSpecification
from lutterfly.hdl.parts.isa import command_shape
from streams import pack

CONFIG = PRESETS["tiny"]

every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)


def test_every_code_has_its_specification() -> None:
    assert {code: engine.code for code, engine in ENGINES.items()} == {code: code for code in isa.Engine}


@pytest.mark.parametrize("code", [7, 8, 15])
def test_an_unknown_engine_is_an_error(code: int) -> None:
    with pytest.raises(ValueError, match=rf"^engine must be one of 0 \(MAC\), .*, 6 \(BINARY_MAXIMUM\), not {code}$"):
        specification(code)


@every_engine
def test_its_random_windows_are_legal(engine: EngineSpecification) -> None:
    rng = np.random.default_rng(0)
    empty = dict.fromkeys((field.name for field in isa.COMPUTE.fields), 0)
    for _ in range(200):
        window = engine.random_window(CONFIG, rng, 8)
        assert engine.is_legal(empty | window.fields, CONFIG)
        assert 0 <= window.sum_start < window.fields["steps"]


@every_engine
def test_conditions_mean_the_same_in_hardware(engine: EngineSpecification) -> None:
    rng, shape = np.random.default_rng(1), command_shape(isa.COMPUTE)
    module, command, legal = Module(), Signal(shape), Signal()
    module.d.comb += legal.eq(engine.legal(command, CONFIG))
    # Around a legal window, so that each condition is met often and violated often.
    commands = []
    for _ in range(300):
        fields = dict.fromkeys((field.name for field in isa.COMPUTE.fields if field.lsb >= 32), 0)
        fields |= {"index": 0, "after": 0} | engine.random_window(CONFIG, rng, 8).fields
        for name in ("steps", "rows", "skip", "tile_inner", "add_table"):
            if rng.random() < 0.15:
                fields[name] = int(rng.integers(2 if name == "tile_inner" else 4))
        commands.append(fields)
    found = []

    async def bench(context) -> None:
        for fields in commands:
            context.set(command.as_value(), pack(fields, shape))
            found.append(bool(context.get(legal)))

    simulator = Simulator(module)
    simulator.add_testbench(bench)
    simulator.run()
    assert found == [engine.is_legal(fields, CONFIG) for fields in commands]
    assert len(set(found)) == 2
