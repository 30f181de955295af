"""A second source of networks: shapes of real families, random graphs and long runs of commands bound by results.

Written without looking at the first one, ``blocks``, so that what one of them never draws the other may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lutterfly.golden.config import Config

from . import bound, combined, convolutional, dags, detection, extremes, integers, mobile, sequences
from .builder import Net
from .configurations import CONFIGS, with_products
from .net_file import Form
from .scope import Scope

FAMILIES: tuple[Callable[[Net, Scope], None], ...] = (
    convolutional.chain,
    convolutional.densenet,
    convolutional.inception,
    convolutional.resnet,
    convolutional.resnext,
    convolutional.squeezenet,
    mobile.mobilenet_v1,
    mobile.mobilenet_v2,
    mobile.mobilenet_v3,
    detection.wide_heads,
    detection.yolo,
    detection.unet,
    detection.multi_scale,
    sequences.perceptron,
    sequences.autoencoder,
    sequences.waveform,
    sequences.spectrogram,
    bound.copies,
    bound.widening,
    bound.tables,
    bound.side_by_side,
    bound.channels_apart,
    dags.random_graph,
    dags.random_graph,
    extremes.repeated_windows,
    extremes.repeated_elements,
    extremes.smallest,
    extremes.heavy,
    extremes.at_the_bus,
    extremes.averages,
    integers.integer_products,
)
#: Of seeds from this one on; networks of those before are as they were, because tests name them.
FIRST_COMBINED = 1_000_000
COMBINED: tuple[Callable[[Net, Scope], None], ...] = (
    combined.squeeze_excite,
    combined.gated,
    combined.upsampling_unet,
    combined.shuffled,
    combined.cropped,
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


def network(seed: int) -> Network:
    """The network of a seed: always the same."""
    families = COMBINED if seed >= FIRST_COMBINED else FAMILIES
    number, at = divmod(seed % FIRST_COMBINED, len(families))
    family, config_name = families[at], ROUND[number % len(ROUND)]
    if families is COMBINED:
        config_name = with_products(config_name)
    rng = np.random.default_rng([seed, 0x4E7])
    form = Form(*(bool(rng.integers(2)) for _ in range(3)))
    if family is integers.integer_products:
        form = Form(False, form.unsigned, form.per_channel)
    net = Net(form, rng)
    family(net, Scope(CONFIGS[config_name], rng))
    batch = int(rng.integers(1, 4)) if family is sequences.perceptron else 1
    return Network(seed, family.__name__, form, config_name, batch, net.finish(), net.macs)
