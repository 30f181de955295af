# amaranth: UnusedElaboratable=no
"""Which multipliers work twice a cycle: those of a device with too few blocks, counted in the Verilog."""

from __future__ import annotations

import dataclasses
import re

import pytest

from cocotb_tests.support.tiers import sweep
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, ClusterConfig
from lutterfly.golden.engines import ENGINES, MAC, MAXIMUM, EngineConfigs
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.fpc import FpcConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.pipeline import Platform
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.synth.device import DEVICES
from lutterfly.synth.flow import is_pumped, multipliers

TINY = PRESETS["tiny"]
PLAIN = EngineConfigs.of(MAC, MAXIMUM)
CONFIGS = {
    "tiny": TINY,
    "without borrowers": dataclasses.replace(TINY, engines=PLAIN),
    "own columns, two cores": dataclasses.replace(
        TINY,
        array=ArrayConfig(lanes=4, columns=2, requant_lanes=2),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(width=16), DEPTHWISE=DepthwiseConfig(taps=2)),
        cluster=ClusterConfig(cores=2),
    ),
}


def blocks(config: Config, *, pumped: bool) -> int:
    """Products of two registers in the Verilog: others are by constants."""
    text = to_verilog(TopAxi(config), name="top", platform=Platform(is_pumped=pumped))
    return len(re.findall(r" \* (?:\\?\w+|\$signed\(\\?\w+\));", text))


@pytest.mark.regress
@pytest.mark.parametrize("name", sweep(CONFIGS, kept=["tiny"]))
def test_blocks_are_those_that_the_verilog_has(name: str) -> None:
    config = CONFIGS[name]
    assert blocks(config, pumped=False) == multipliers(config)
    assert blocks(config, pumped=True) == multipliers(config) - config.cores * config.array.lanes


@pytest.mark.parametrize(("lacking", "wanted"), [(0, False), (1, True)])
def test_where_the_device_has_too_few(lacking: int, wanted: bool) -> None:
    config = PRESETS["ecp5-85k"]
    device = dataclasses.replace(DEVICES["ecp5-85k"], dsp=multipliers(config) - lacking)
    assert is_pumped(config, device) == wanted
    one = dataclasses.replace(config, array=ArrayConfig(lanes=64, columns=1, requant_lanes=1), engines=PLAIN)
    assert not is_pumped(one, dataclasses.replace(device, dsp=1))


@pytest.mark.parametrize("name", ["ecp5-85k", "ecp5-85k-on-chip", "ecp5-45k-on-chip", "ecp5-25k-on-chip"])
def test_these_presets_have_enough(name: str) -> None:
    (device,) = (device for kind, device in DEVICES.items() if name.startswith(kind))
    assert not is_pumped(PRESETS[name], device)


def test_256_products_are_more_than_an_85f_has() -> None:
    assert is_pumped(PRESETS["ecp5-85k-256"], DEVICES["ecp5-85k"])


@pytest.mark.regress
def test_one_column_has_its_own() -> None:
    config = dataclasses.replace(TINY, array=ArrayConfig(lanes=4, columns=1, requant_lanes=1), engines=PLAIN)
    assert blocks(config, pumped=True) == multipliers(config)
