"""A second source of networks: shapes of real families, random graphs and long runs of commands bound by results.

Written without looking at the first one, ``blocks``, so that what one of them never draws the other may.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cocotb_tests.support.networks.families import limits, real
from cocotb_tests.support.networks.families.builder import Form, Net, Scope
from cocotb_tests.support.tiers import core_marks
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ArrayConfig, AxiConfig, MemoryConfig
from lutterfly.golden.engines import ADD, DEPTHWISE, MAC, MAXIMUM, MULTIPLY, WINOGRAD, EngineConfigs
from lutterfly.golden.engines.add import AddConfig
from lutterfly.golden.engines.depthwise import DepthwiseConfig
from lutterfly.golden.engines.engine import Engine
from lutterfly.golden.presets import PRESETS

# The accelerators that networks are tried on: two presets, and odd ones at the limits of what is legal.


def _odd(
    array: tuple[int, int, int],
    memory: tuple[int, ...],
    axi: tuple[int, int],
    taps: int,
    tables: int,
    resident: int,
    *more: Engine,
) -> Config:
    """``array``: lanes, columns, requant_lanes; ``memory``: bytes of features, weights and parameters, tables, list
    entries; ``axi``: data bits, outstanding; ``taps`` of DEPTHWISE, pairs of ``tables`` of ADD; ``more`` engines."""
    return Config(
        ArrayConfig(*array),
        MemoryConfig(*memory),
        AxiConfig(*axi),
        EngineConfigs.of(MAC, MAXIMUM, DEPTHWISE, ADD, *more, DEPTHWISE=DepthwiseConfig(taps), ADD=AddConfig(tables)),
        resident_commands=resident,
    )


ODD: dict[str, Config] = {
    # Results never bind: as many requantisers as columns. The bus has one burst in flight. Pairs of results as well.
    "unbound": _odd((4, 4, 4), (4 << 10, 8 << 10, 2 << 10, 2, 512), (32, 1), 4, 2, 4, WINOGRAD),
    # Results bind most: one requantiser for eight columns, and for eight lanes of a depthwise layer.
    "bound": _odd((8, 8, 1), (16 << 10, 32 << 10, 4 << 10, 4, 1024), (64, 16), 5, 2, 16),
    # One column, no chain, the smallest memories.
    "least": _odd((4, 1, 1), (2 << 10, 4 << 10, 512, 4, 128), (32, 3), 1, 1, 4),
    # Windows of one piece whose groups are half of it.
    "square": _odd((16, 16, 8), (32 << 10, 64 << 10, 8 << 10, 8, 1024), (128, 2), 16, 4, 8, WINOGRAD),
    # A narrow array with wide words, of which a result takes many groups.
    "wide": _odd((32, 2, 1), (32 << 10, 32 << 10, 8 << 10, 16, 1024), (32, 8), 2, 16, 32),
    # The bus is as wide as a word.
    "level": _odd((8, 4, 2), (8 << 10, 16 << 10, 4 << 10, 4, 2048), (64, 5), 3, 2, 64, WINOGRAD),
}
_PRESETS: dict[str, Config] = {name: PRESETS[name] for name in ("tiny", "ecp5-85k")}


def with_products(name: str) -> str:
    """The name of the same accelerator with the engine for products of activations, which both presets have."""
    return name if name in _PRESETS else f"{name} with products"


#: With that engine.
_MULTIPLYING = {
    with_products(name): dataclasses.replace(config, engines=config.engines.having(MULTIPLY, MULTIPLY.configuration()))
    for name, config in ODD.items()
}
CONFIGS: dict[str, Config] = _PRESETS | ODD | _MULTIPLYING


FAMILIES: tuple[Callable[[Net, Scope], None], ...] = (
    real.chain,
    real.densenet,
    real.inception,
    real.resnet,
    real.resnext,
    real.squeezenet,
    real.mobilenet_v1,
    real.mobilenet_v2,
    real.mobilenet_v3,
    real.wide_heads,
    real.yolo,
    real.unet,
    real.multi_scale,
    real.perceptron,
    real.autoencoder,
    real.waveform,
    real.spectrogram,
    limits.copies,
    limits.widening,
    limits.tables,
    limits.side_by_side,
    limits.channels_apart,
    limits.random_graph,
    limits.random_graph,
    limits.repeated_windows,
    limits.repeated_elements,
    limits.smallest,
    limits.heavy,
    limits.at_the_bus,
    limits.averages,
    limits.integer_products,
)
#: Of seeds from this one on; networks of those before are as they were, because tests name them.
FIRST_COMBINED = 1_000_000
COMBINED: tuple[Callable[[Net, Scope], None], ...] = (
    real.squeeze_excite,
    real.gated,
    real.upsampling_unet,
    real.shuffled,
    real.cropped,
)
#: One after the other, with each of them every family: the small accelerator, on which most is quickest, most often.
ROUND = (
    "tiny",
    "ecp5-85k",
    "bound",
    "tiny",
    "unbound",
    "level",
    "ecp5-85k",
    "least",
    "square",
    "tiny",
    "wide",
    "ecp5-85k",
)


@dataclass(frozen=True)
class Network:
    """A network, and what it is tried on."""

    seed: int
    family: str
    form: Form
    config_name: str
    batch: int
    model: bytes
    macs: int

    @property
    def config(self) -> Config:
        return CONFIGS[self.config_name]

    @property
    def text(self) -> str:
        return f"families.network({self.seed}): {self.family}, {self.form}, on {self.config_name}, batch {self.batch}"


def target(seed: int) -> tuple[Callable[[Net, Scope], None], str]:
    """Return the family of a seed, and the name of the accelerator that its network is tried on."""
    families = COMBINED if seed >= FIRST_COMBINED else FAMILIES
    number, at = divmod(seed % FIRST_COMBINED, len(families))
    name = ROUND[number % len(ROUND)]
    return families[at], with_products(name) if families is COMBINED else name


def on_their_cores(seeds: Iterable[int]) -> list[Any]:
    """Return seeds as values of a parameter, with the markers of the accelerators that their networks run on."""
    return [pytest.param(seed, marks=core_marks(target(seed)[1])) for seed in seeds]


def network(seed: int) -> Network:
    """The network of a seed: always the same."""
    family, config_name = target(seed)
    rng = np.random.default_rng([seed, 0x4E7])
    form = Form(*(bool(rng.integers(2)) for _ in range(3)))
    if family is limits.integer_products:
        form = Form(False, form.unsigned, form.per_channel)
    net = Net(form, rng)
    family(net, Scope(CONFIGS[config_name], rng))
    batch = int(rng.integers(1, 4)) if family is real.perceptron else 1
    return Network(seed, family.__name__, form, config_name, batch, net.finish(), net.macs)
