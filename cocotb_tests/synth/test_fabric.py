# amaranth: UnusedElaboratable=no
"""Which multipliers are look-up tables: as few as a device's blocks permit, counted in the Verilog."""

from __future__ import annotations

import dataclasses
import re

import pytest

from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, ClusterConfig
from lutterfly.golden.engines import ENGINES, MAC, MAXIMUM
from lutterfly.golden.engines.configurations import EngineConfigs
from lutterfly.golden.engines.depthwise.configuration import DepthwiseConfig
from lutterfly.golden.engines.fpc.configuration import FpcConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.platforms import Platform
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_axi import TopAxi
from lutterfly.synth.device import DEVICES
from lutterfly.synth.fabric import fabric_columns, multipliers

TINY = PRESETS["tiny"]
CONFIGS = {
    "tiny": TINY,
    "without borrowers": dataclasses.replace(TINY, engines=EngineConfigs.of(MAC, MAXIMUM)),
    "own columns, two cores": dataclasses.replace(
        TINY,
        array=ArrayConfig(lanes=4, columns=2, requant_lanes=2),
        engines=EngineConfigs.of(*ENGINES.values(), FPC=FpcConfig(width=16), DEPTHWISE=DepthwiseConfig(taps=2)),
        cluster=ClusterConfig(cores=2),
    ),
}


def blocks(config: Config, columns: int) -> int:
    """Products of two registers in the Verilog with so many columns of look-up tables: others are by constants."""
    text = to_verilog(TopAxi(config), name="top", platform=Platform(fabric_columns=columns))
    return len(re.findall(r" \* (?:b|\$signed\(b\));", text))


@pytest.mark.parametrize("name", CONFIGS)
def test_blocks_are_those_that_the_verilog_has(name: str) -> None:
    config = CONFIGS[name]
    device = dataclasses.replace(DEVICES["ecp5-85k"], dsp=0)
    most = fabric_columns(config, device)
    assert most == config.array.columns - (name != "without borrowers")
    assert blocks(config, 0) == multipliers(config)
    assert blocks(config, most) == multipliers(config) - config.cores * most * config.array.lanes


@pytest.mark.parametrize(("lacking", "columns"), [(0, 0), (1, 1), (16, 1), (17, 2), (112, 7), (113, 7)])
def test_as_few_columns_as_the_device_permits(lacking: int, columns: int) -> None:
    config = PRESETS["ecp5-85k"]
    device = dataclasses.replace(DEVICES["ecp5-85k"], dsp=multipliers(config) - lacking)
    assert fabric_columns(config, device) == columns


@pytest.mark.parametrize("name", ["ecp5-85k", "ecp5-85k-on-chip", "ecp5-45k-on-chip", "ecp5-25k-on-chip"])
def test_presets_have_blocks_alone(name: str) -> None:
    (device,) = (device for kind, device in DEVICES.items() if name.startswith(kind))
    assert fabric_columns(PRESETS[name], device) == 0
