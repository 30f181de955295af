"""Graphs whose convolutions have few outputs or three taps, and small arrays that such layers suit."""

from __future__ import annotations

import dataclasses

import numpy as np

from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig
from lutterfly.golden.engines import ADD, DEPTHWISE, MAC, MAXIMUM, MULTIPLY, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.winograd import WinogradConfig
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler.network import Network
from lutterfly.host.compiler.operation import Command
from lutterfly.host.compiler.passes import PASSES, run
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Convolution, Graph, Window

TINY = PRESETS["tiny"]


def array(lanes: int, columns: int, requant_lanes: int, **memory: int) -> Config:
    """A small configuration with an array of this size."""
    return dataclasses.replace(
        TINY,
        array=ArrayConfig(lanes=lanes, columns=columns, requant_lanes=requant_lanes),
        memory=dataclasses.replace(TINY.memory, **memory),
        axi=PRESETS["ecp5-85k"].axi if lanes >= 8 else TINY.axi,
        engines=EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, MULTIPLY),
    )


ARRAYS = (array(16, 16, 8), array(8, 8, 4), array(4, 4, 1))


def window_of(rng: np.random.Generator, shape: tuple[int, int, int]) -> Window:
    """A window of any stride, dilation and padding, in rows and columns apart."""
    while True:
        kernel = tuple(map(int, rng.integers(1, 5, 2)))
        window = Window(
            kernel,
            tuple(map(int, rng.integers(1, 4, 2))),
            tuple(map(int, rng.integers(1, 4, 2))),
            tuple(map(int, rng.integers(0, 4, 4))),
        )
        if min(window.output_size(*shape[:2])) > 0:
            return window


def neighbours(seed: int, columns: int, *, most: int = 14) -> Graph:
    """A convolution with few outputs, between layers of other kinds."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, most)), int(rng.integers(1, most)), int(rng.choice([1, 2, 3, 4, 7])))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name = "x"
    before = rng.choice(["", "convolution", "pool", "slice", "crop", "depthwise"])
    if before == "convolution":
        name = maker.convolution(name, int(rng.integers(1, 6)), Window((1, 1)))
    elif before == "pool":
        name = maker.max_pool(name, Window((3, 3), pads=(1, 1, 1, 1)))
    elif before == "slice":
        trunk = maker.convolution(name, 6, Window((1, 1)), zero_point=3)
        name = maker.slice(trunk, int(rng.integers(0, 3)), 3)
    elif before == "crop" and min(shape[:2]) > 2:
        name = maker.crop(maker.convolution(name, 3, Window((1, 1))), (1, 0, 0, 1))
    elif before == "depthwise":
        name = maker.depthwise(name, Window((3, 3), pads=(1, 1, 1, 1)))
    window, outputs = window_of(rng, maker.graph.tensors[name].shape), int(rng.integers(1, columns // 2 + 1))
    name = maker.convolution(name, outputs, window, table=bool(rng.integers(2)))
    return followed(rng, maker, name, Window((1, 3), pads=(0, 1, 0, 1)))


def followed(rng: np.random.Generator, maker: GraphMaker, name: str, beside: Window) -> Graph:
    """What ends in a tensor and perhaps in a layer of another kind; a convolution that is added to it has the window
    ``beside``."""
    outputs = maker.graph.tensors[name].shape[2]
    behind = rng.choice(["", "add", "pool", "concat", "slice", "depthwise", "convolution", "product"])
    if behind == "add":
        name = maker.add(name, maker.convolution(name, outputs, beside))
    elif behind == "pool":
        return maker.finish(maker.max_pool(name, Window((2, 3), pads=(1, 1, 1, 1))), name)
    elif behind == "concat":
        beside = maker.convolution(name, int(rng.integers(1, 5)), Window((1, 1)))
        name = maker.concat(name, beside, tables=bool(rng.integers(2)))
    elif behind == "slice":
        name = maker.slice(name, 0, max(outputs // 2, 1))
    elif behind == "depthwise":
        name = maker.depthwise(name, Window((3, 3), (1, 2), pads=(1, 1, 1, 1)))
    elif behind == "convolution":
        name = maker.convolution(name, int(rng.integers(1, 20)), Window((3, 3), pads=(1, 1, 1, 1)))
    elif behind == "product":
        name = maker.multiply(name, maker.convolution(name, outputs, Window((1, 1))))
    return maker.finish(name)


def without_zeros(graph: Graph) -> Graph:
    """The same with every connection of its convolutions on."""
    for layer in graph.layers:
        if isinstance(layer, Convolution):
            layer.weights[layer.weights == 0] = 1
    return graph


def computes(plan: Plan, index: int) -> list[Command]:
    """The commands of a layer."""
    return [command for job in plan.computes for command in job if command.layer == index]


def planned(graph: Graph, config: Config, *, wide: bool = True) -> Plan:
    """What the passes make of a graph, with wide windows or without."""
    return run(Network(graph, config, given=graph, has_wide_windows=wide), PASSES)


def name_of(config: Config) -> str:
    return f"{config.array.lanes}x{config.array.columns}"


def first_layer(channels: int = 8, size: tuple[int, int] = (12, 12), **options) -> Graph:
    """A small map of three channels, of which 3x3 windows at stride 2 take one row in a word of 16 bytes, and two
    neighbours likewise."""
    maker = GraphMaker((*size, 3), zero_point=-7)
    return maker.finish(maker.convolution("x", channels, Window((3, 3), (2, 2), pads=(0, 0, 1, 1)), **options))


# Graphs with convolutions of three taps among others, and small accelerators that have the engine for them.


def with_winograd(config: Config) -> Config:
    """An accelerator that has the engine."""
    return dataclasses.replace(config, engines=config.engines.having(WINOGRAD, WinogradConfig()))


#: Results of a window take four cycles, four, and two.
WINOGRAD_ARRAYS = tuple(map(with_winograd, (array(16, 16, 8), array(4, 4, 2), array(8, 4, 4))))
#: Those that are simulated.
WINOGRAD_CORES = (WINOGRAD_ARRAYS[1], dataclasses.replace(WINOGRAD_ARRAYS[2], hands_over=True))


def _three_taps_window(rng: np.random.Generator, shape: tuple[int, int, int]) -> Window:
    """A window with three taps in a row or a column, mostly, and otherwise of any stride, dilation and padding."""
    while True:
        kernel, stride, dilation = (list(map(int, rng.integers(1, most, 2))) for most in (5, 4, 4))
        if rng.random() < 0.8:
            along = int(rng.integers(2))
            kernel[along], stride[along], dilation[along] = 3, 1, 1
        if rng.random() < 0.3:
            kernel, stride, dilation = [3, 3], [1, 1], [1, 1]
        pads = tuple(map(int, rng.integers(0, 4, 4)))
        window = Window((kernel[0], kernel[1]), (stride[0], stride[1]), (dilation[0], dilation[1]), pads)
        if min(window.output_size(*shape[:2])) > 0:
            return window


def three_taps(seed: int, columns: int, *, most: int = 14, channels: int = 40) -> Graph:
    """Such a convolution of any size, between layers of other kinds; some of its connections may be off."""
    rng = np.random.default_rng([seed, 0x3A])
    shape = (int(rng.integers(1, most)), int(rng.integers(1, most)), int(rng.integers(1, channels)))
    maker = GraphMaker(shape, seed=seed, zero_point=int(rng.integers(-128, 128)))
    name = "x"
    before = rng.choice(["", "convolution", "pool", "slice", "crop", "depthwise"])
    if before == "convolution":
        name = maker.convolution(name, int(rng.integers(1, channels)), Window((1, 1)))
    elif before == "pool":
        name = maker.max_pool(name, Window((3, 3), pads=(1, 1, 1, 1)))
    elif before == "slice":
        name = maker.slice(maker.convolution(name, 20, Window((1, 1)), zero_point=3), int(rng.integers(0, 9)), 11)
    elif before == "crop" and min(shape[:2]) > 2:
        name = maker.crop(maker.convolution(name, 9, Window((1, 1))), (1, 0, 0, 1))
    elif before == "depthwise":
        name = maker.depthwise(name, Window((3, 3), pads=(1, 1, 1, 1)))
    window, outputs = _three_taps_window(rng, maker.graph.tensors[name].shape), int(rng.integers(1, 3 * columns))
    name = maker.convolution(name, outputs, window, table=bool(rng.integers(2)))
    weights = maker.graph.layers[-1].weights
    if rng.random() < 0.3:
        # A kernel row, a kernel column, a block of channels.
        weights[:, int(rng.integers(weights.shape[1]))] = 0
        weights[:, :, int(rng.integers(weights.shape[2]))] = 0
        weights[..., : int(rng.integers(weights.shape[3] + 1))] = 0
    elif rng.random() < 0.2:
        weights[:] = rng.choice(np.array([-128, 127], np.int8), weights.shape)
    return followed(rng, maker, name, Window((3, 3), pads=(1, 1, 1, 1)))
