"""The layers of this package as functions of codes in an ONNX file, with the scales of the codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import onnx
import torch
from torch import nn

from ...host.model.functions import binary_function, fpc_function
from ..layers.binary import BinaryLayer
from ..layers.layer import FastPointwiseConv2d

_CODES = 255


@dataclass(frozen=True)
class Scale:
    """int8 codes for real numbers: ``real = (code - zero_point) * step``.

    Attributes
    ----------
    step : float
        A float32 value.
    zero_point : int
    """

    step: float
    zero_point: int

    @classmethod
    def symmetric(cls, values: np.ndarray) -> Scale:
        """Create a scale with the zero point 0."""
        greatest = float(np.abs(values).max())
        return cls(float(np.float32(greatest / 127)) if greatest else 1.0, 0)

    @classmethod
    def asymmetric(cls, values: np.ndarray) -> Scale:
        """Create a scale whose codes reach from the least value, or 0, to the greatest one, or 0."""
        least, greatest = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        step = float(np.float32((greatest - least) / _CODES)) or 1.0
        return cls(step, int(np.clip(round(-128 - least / step), -128, 127)))


class LayerFunction(ABC):
    """A layer as a function.

    Attributes
    ----------
    family : str
        The function's name, to which a number is added where a model has several.
    entering : Scale or None
        The scale of its input codes; None where any will do.
    leaving : Scale
        The scale of its result codes.
    """

    family: str
    entering: Scale | None
    leaving: Scale

    @abstractmethod
    def make(self, name: str, entering: Scale, opset: int) -> onnx.FunctionProto:
        """Create the function, for codes of a scale."""

    @abstractmethod
    def differences(self, codes: np.ndarray, results: np.ndarray, entering: Scale) -> np.ndarray:
        """Return the differences in codes between results, int8[samples, ...], and those of the layer for the input
        codes."""


class _FastPointwiseFunction(LayerFunction):
    family = fpc_function.NAME

    def __init__(self, layer: FastPointwiseConv2d) -> None:
        self.layer, settings = layer, layer.fixed_point
        self.entering = Scale(settings.input_scale, settings.input_zero_point)
        self.leaving = Scale(settings.output_scale, settings.output_zero_point)

    def make(self, name: str, entering: Scale, opset: int) -> onnx.FunctionProto:
        layer, settings = self.layer, self.layer.fixed_point
        stages, epilogue = layer.stages(settings), layer.epilogue(settings)
        return fpc_function.make_function(stages, epilogue, entering.zero_point, name=name, opset=opset)

    def differences(self, codes: np.ndarray, results: np.ndarray, entering: Scale) -> np.ndarray:
        with torch.no_grad():
            wanted = self.layer.run_codes(torch.from_numpy(codes.astype(np.float32))).numpy()
        return np.abs(results - wanted)


class _BinaryFunction(LayerFunction):
    family = binary_function.NAME
    entering = None

    def __init__(self, layer: BinaryLayer, given: np.ndarray) -> None:
        self.layer = layer
        self.leaving = Scale(1.0, 0) if layer.signs else Scale.asymmetric(given)

    def make(self, name: str, entering: Scale, opset: int) -> onnx.FunctionProto:
        folded, epilogue = self.layer.fold(), {}
        if folded.scale is not None:
            scale = (folded.scale / np.float32(self.leaving.step)).astype(np.float32)
            epilogue = {"scale": scale, "zero_point": self.leaving.zero_point}
        return binary_function.make_function(
            folded.weights,
            bias=folded.bias,
            input_zero_point=entering.zero_point,
            name=name,
            opset=opset,
            **epilogue,
            **self.layer.geometry,
        )

    def differences(self, codes: np.ndarray, results: np.ndarray, entering: Scale) -> np.ndarray:
        with torch.no_grad():
            given = self.layer(torch.from_numpy(codes.astype(np.float32) - entering.zero_point)).numpy()
        exact = given.astype(np.float64) / self.leaving.step + self.leaving.zero_point
        # Half-way between two codes the rounding of float32, with its 24 bits, decides.
        near = 0.5 + 2.0**-22 * np.abs(exact)
        return np.ceil(np.maximum(np.abs(results - np.clip(exact, -128, 127)) - near, 0))


def find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of a model that become functions, by name.

    Raises
    ------
    ValueError
        If a layer is in the model twice, or is a fast pointwise convolution in float.
    """
    modules = model.named_modules(remove_duplicate=False)
    layers = {name: module for name, module in modules if isinstance(module, FastPointwiseConv2d | BinaryLayer)}
    for name, layer in layers.items():
        places = [other for other in layers if layers[other] is layer]
        if len(places) > 1:
            raise ValueError(
                f"{name} must have one place in the model, not {', '.join(places)}; give each its own layer"
            )
        if isinstance(layer, FastPointwiseConv2d) and layer.fixed_point is None:
            raise ValueError(f"{name} must be in fixed point; call calibrate")
    return layers


def function_of(layer: nn.Module, given: np.ndarray) -> LayerFunction:
    """Create the function of a layer with these results, float[samples, ...]."""
    return _FastPointwiseFunction(layer) if isinstance(layer, FastPointwiseConv2d) else _BinaryFunction(layer, given)
