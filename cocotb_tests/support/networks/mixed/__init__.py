"""A third source of networks: features that the others draw one by one meet here in one graph.

Fast pointwise, binary, sparse, dense and depthwise layers, tables, sums, concatenations, slices, pooling and fully
connected layers, in QOperator and QDQ form and as functions; channels and pixels that nothing reads, outputs in
between, and channels between layers in an order that is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cocotb_tests.support.networks.families.builder import Scope
from cocotb_tests.support.networks.mixed.writer import (
    ArrangedNet,
    MixedNet,
    MixingNet,
    MovedNet,
    MultipliedNet,
    WideNet,
)
from lutterfly.golden.config import Config
from lutterfly.golden.program.program import Program
from lutterfly.host.compiler import batched, compile_graph
from lutterfly.host.compiler.rewrite.permute import in_orders
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph

from . import graphs
from .configurations import CONFIGS, DRAWN, ODD, config_of, spread_by_of

__all__ = [
    "CONFIGS",
    "DRAWN",
    "FIRST_ARRANGED",
    "FIRST_MIXING",
    "FIRST_MOVED",
    "FIRST_MULTIPLIED",
    "FIRST_WIDE",
    "ODD",
    "Network",
    "config_of",
    "network",
]

#: Networks of this seed and later ones have 16-bit tensors. Those before are what they were without, since tests name
#: them for what was wrong with them.
FIRST_WIDE = 1_000_000

#: In networks of this seed and later ones elements move to other pixels.
FIRST_MOVED = 2_000_000

#: In networks of this seed and later ones they do so along any axis, and channels are shuffled.
FIRST_ARRANGED = 3_000_000

#: Networks of this seed and later ones have products, differences and extremes of two activations.
FIRST_MULTIPLIED = 4_000_000

#: Networks of this seed and later ones have matrix products of two activations, and sums of a map and a vector.
FIRST_MIXING = 5_000_000

#: Networks that follow one another; of four, one has channels in the order that the compiler chooses.
_GRAPHS = (
    graphs.movable,
    graphs.vectors,
    graphs.maps,
    graphs.movable,
    graphs.classes,
    graphs.maps,
    graphs.maps,
    graphs.maps,
)
_CHOSEN = 0.25


@dataclass(frozen=True)
class Network:
    """A network, and what it is tried on."""

    seed: int
    config_name: str
    model: bytes
    batch: int
    is_reordered: bool

    @property
    def config(self) -> Config:
        return config_of(self.config_name)

    @property
    def text(self) -> str:
        order = "drawn" if self.is_reordered else "chosen"
        return f"mixed.network({self.seed}, {self.config_name!r}): batch {self.batch}, order of channels {order}"

    def graph(self) -> Graph:
        """As the frontend reads it, for one sample."""
        return import_model(self.model)

    def program(self) -> Program:
        """What it is compiled to.

        Raises
        ------
        ValueError
            If it is refused.
        """
        graph = batched(self.graph(), self.batch)
        if self.is_reordered:
            rng = np.random.default_rng([self.seed, 0x0DE])
            graph = in_orders(graph, rng.permutation)
        spread_by = spread_by_of(self.config_name)
        return compile_graph(graph, self.config, spread_by=spread_by, permute=not self.is_reordered)


def network(seed: int, config_name: str) -> Network:
    """The network of a seed for an accelerator: always the same."""
    rng = np.random.default_rng([seed, 0x3A1])
    net: MixedNet
    config, draw = config_of(config_name), _GRAPHS[seed % len(_GRAPHS)]
    if seed >= FIRST_MIXING:
        net = MixingNet(rng, config)
    elif seed >= FIRST_MULTIPLIED:
        net = MultipliedNet(rng, config)
    elif seed >= FIRST_ARRANGED:
        net = ArrangedNet(rng, config)
    elif seed >= FIRST_MOVED:
        net = MovedNet(rng, config)
    elif seed >= FIRST_WIDE:
        net = WideNet(rng, config)
    else:
        net = MixedNet(rng)
    draw(net, Scope(config, rng))
    batch = int(rng.integers(1, 5)) if draw is graphs.vectors else 1
    return Network(seed, config_name, net.finish(), batch, is_reordered=bool(rng.random() > _CHOSEN))
