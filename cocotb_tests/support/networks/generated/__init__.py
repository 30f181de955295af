"""Random quantised ONNX models, built node by node: single layers and small chains, in both forms."""

from __future__ import annotations

import numpy as np

from .maker import ACTIVATIONS, Maker
from .writer import FORMS, TINY, Generated, Limits

__all__ = ["ACTIVATIONS", "FORMS", "TINY", "Generated", "Limits", "Maker", "chain", "layer"]


def layer(kind: str, seed: int, *, form: str = "qop", unsigned: bool = False, limits: Limits = TINY) -> Generated:
    """A model with one layer: "conv", "conv1d", "fc", "pool", "activation" or the name of an activation."""
    maker = Maker(np.random.default_rng([seed, *kind.encode()]), form, unsigned, limits)
    if kind == "fc":
        maker.begin_vector()
        maker.fully_connected()
    else:
        spatial = 1 if kind == "conv1d" else 2
        maker.begin_map(spatial)
        if kind.startswith("conv"):
            maker.convolution(spatial=spatial)
        elif kind == "pool":
            maker.max_pool()
        else:
            maker.activation(None if kind == "activation" else kind)
    return maker.finish()


def chain(
    seed: int, *, form: str = "qop", unsigned: bool = False, limits: Limits = TINY, float_ends: bool | None = None
) -> Generated:
    """A small network: convolution, perhaps an activation and max pooling, convolution, flatten, fully connected."""
    maker = Maker(np.random.default_rng([seed, 7]), form, unsigned, limits)
    rng = maker.rng
    maker.begin_map()
    maker.convolution()
    if rng.random() < 0.6:
        maker.activation()
    if rng.random() < 0.6 and min(maker.shape[2:]) > 1:
        maker.max_pool()
    maker.convolution()
    if rng.random() < 0.4:
        maker.activation()
    if rng.random() < 0.8:
        maker.fully_connected()
        if rng.random() < 0.5:
            maker.activation()
            maker.fully_connected(10)
    return maker.finish(float_ends=bool(rng.random() < 0.3) if float_ends is None else float_ends)
