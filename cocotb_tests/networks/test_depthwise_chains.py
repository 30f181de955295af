"""Depthwise layers behind one another: windows of many steps and several results in front of windows of one step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.engines import DEPTHWISE
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError
from lutterfly.host.graph import Graph, Window
from lutterfly.host.session.compare import TOLERANCE, TOLERANCE_CYCLES

NETWORKS, BLOCK = 300, 25
#: Of a block: networks that do not fit into the memories of a small accelerator, or its arena on the chip.
REFUSED = 4


def drawn(seed: int) -> Config:
    """`tiny` with a few chains, of other widths; every second one hands over."""
    rng = np.random.default_rng(seed)
    tiny = PRESETS["tiny"]
    taps, chains = [(1, 4), (2, 2), (1, 3), (2, 4), (3, 2), (1, 6)][seed]
    lanes, requant_lanes = int(rng.choice([8, 16])), int(rng.choice([1, 2, 4]))
    array = dataclasses.replace(tiny.array, lanes=lanes, columns=8, requant_lanes=requant_lanes)
    engines = tiny.engines.having(DEPTHWISE, DepthwiseConfig(taps=taps, chains=chains))
    return dataclasses.replace(tiny, array=array, engines=engines, hands_over=bool(seed % 2))


DRAWN = [f"drawn {seed}" for seed in range(6)]


def config_of(name: str) -> Config:
    return drawn(int(name.removeprefix("drawn "))) if name in DRAWN else PRESETS[name]


def depthwise_and_pointwise(seed: int) -> Graph:
    """A few layers as MobileNet-like blocks have them, with what follows a depthwise layer: an affine by channel."""
    rng = np.random.default_rng([seed, 58])
    shape = (int(rng.integers(3, 25)), int(rng.integers(3, 25)), int(rng.choice([3, 4, 8, 16, 17, 24, 48])))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name = "x"
    for _ in range(int(rng.integers(2, 6))):
        kind = rng.integers(4)
        if kind == 0:
            name = maker.convolution(name, int(rng.choice([8, 16, 24])), Window((1, 1)))
        elif kind == 1:
            name = maker.depthwise(name, Window((1, 1), strides(rng)), table=bool(rng.integers(2)))
        else:
            kernel = int(rng.choice([1, 3, 3, 5])), int(rng.choice([3, 3, 5]))
            pads = tuple((size - 1) // 2 for size in kernel) * 2
            name = maker.depthwise(name, Window(kernel, strides(rng), pads=pads))
            name = maker.depthwise(name, Window((1, 1)), table=bool(rng.integers(2)))
    return maker.finish(name)


def strides(rng: np.random.Generator) -> tuple[int, int]:
    stride = int(rng.choice([1, 1, 2]))
    return stride, stride


def refused(config: Config, seeds: range) -> list[str]:
    """Why networks have no program; the others give the reference's bytes in the predicted cycles."""
    found = []
    for seed in seeds:
        try:
            measured = measure(depthwise_and_pointwise(seed), config, seed=seed)
        except CompileError as error:
            found.append(f"{seed}: {error}")
            continue
        cycles = measured.counters["cycles"]
        assert abs(measured.program.predicted_cycles - cycles) <= max(TOLERANCE_CYCLES, TOLERANCE * cycles), seed
    return found


@pytest.mark.regress
@pytest.mark.parametrize("first", range(0, NETWORKS, BLOCK))
@pytest.mark.parametrize("name", [*PRESETS, *DRAWN])
def test_none_stops(name: str, first: int) -> None:
    assert len(reasons := refused(config_of(name), range(first, first + BLOCK))) <= REFUSED, reasons
