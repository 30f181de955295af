"""From a network in PyTorch to the int8 file: by PyTorch's exporters, as they are, and `quantize`."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from cocotb_tests.support.networks.exported.torch_networks import settle
from lutterfly.host.quantize import quantize


def quantised(make: Callable[[], nn.Module], shape: tuple[int, ...], *, dynamo: bool, least: float = 0.5) -> bytes:
    """A network whose batch normalisation knows random images of a shape; ``least`` as :func:`settle` has it."""
    torch.manual_seed(1)
    images = torch.randn(16, *shape)
    model, target = settle(make(), images, least=least), io.BytesIO()
    torch.onnx.export(model, (images[:1],), target, input_names=["image"], dynamo=dynamo, verbose=False)
    return quantize(target.getvalue(), {"image": np.random.default_rng(1).normal(size=(16, *shape)).astype(np.float32)})
