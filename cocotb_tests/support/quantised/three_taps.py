"""Graphs with convolutions of three taps among others, and small accelerators that have the engine for them."""

from __future__ import annotations

import dataclasses

import numpy as np

from cocotb_tests.support.quantised.few_outputs import array, followed
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.config import Config
from lutterfly.golden.engines import WINOGRAD
from lutterfly.golden.engines.winograd import WinogradConfig
from lutterfly.host.graph import Graph, Window


def with_winograd(config: Config) -> Config:
    """An accelerator that has the engine."""
    return dataclasses.replace(config, engines=config.engines.having(WINOGRAD, WinogradConfig()))


#: Results of a window take four cycles, four, and two.
ARRAYS = tuple(map(with_winograd, (array(16, 16, 8), array(4, 4, 2), array(8, 4, 4))))
#: Those that are simulated.
CORES = (ARRAYS[1], dataclasses.replace(ARRAYS[2], hands_over=True))


def window_of(rng: np.random.Generator, shape: tuple[int, int, int]) -> Window:
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
    window, outputs = window_of(rng, maker.graph.tensors[name].shape), int(rng.integers(1, 3 * columns))
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
