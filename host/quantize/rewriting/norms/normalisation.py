"""Batch normalisation as a factor and an offset for each channel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto

Float64 = npt.NDArray[np.float64]


def affine(node: NodeProto, constants: Mapping[str, np.ndarray]) -> tuple[Float64, Float64]:
    """Factor and offset of each channel, float64[channels], that a BatchNormalization comes to."""
    scale, bias, mean, variance = (constants[name].astype(np.float64) for name in node.input[1:5])
    epsilon = next((onnx.helper.get_attribute_value(item) for item in node.attribute if item.name == "epsilon"), 1e-5)
    factor = scale / np.sqrt(variance + epsilon)
    return factor, bias - mean * factor
