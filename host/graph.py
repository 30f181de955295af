"""The quantised graph: what the frontend makes of an ONNX file, and what the compiler's passes work on.

Every tensor is int8 codes in NHWC order without N: ``int8[height, width, channels]``. A vector of K features is
``int8[1, 1, K]``. uint8 tensors of the model are shifted by 128 to int8 codes, and so are their zero points.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Int8 = npt.NDArray[np.int8]


@dataclass(frozen=True)
class View:
    """An ONNX tensor that holds the same codes as a tensor of the graph.

    ``onnx = codes[height, width, channels].transpose(axes).reshape(shape)``, plus 128 as uint8 if ``unsigned``.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, int, int]
    unsigned: bool


@dataclass(frozen=True)
class Tensor:
    """A quantised feature map.

    Attributes
    ----------
    name : str
        Unique in the graph: the name of the first ONNX tensor that it is.
    shape : tuple of int
        (height, width, channels).
    scale : float
        Of the ONNX tensor.
    zero_point : int
        As an int8 code.
    views : tuple of View
        Every integer tensor of the ONNX file that it is, first the one that it is named after.
    """

    name: str
    shape: tuple[int, int, int]
    scale: float
    zero_point: int
    views: tuple[View, ...]


@dataclass(frozen=True)
class Window:
    """Kernel geometry of a convolution or pooling; pairs are (vertical, horizontal).

    ``pads`` is (top, left, bottom, right).
    """

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns from the first tap to the last, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the result for an input of ``height`` x ``width``."""
        top, left, bottom, right = self.pads
        (eh, ew), (sh, sw) = self.extent, self.stride
        return (height + top + bottom - eh) // sh + 1, (width + left + right - ew) // sw + 1


@dataclass(frozen=True, eq=False)
class Layer:
    """One operation: ``name`` is its ONNX node's, for messages."""

    name: str
    input: str
    output: str


@dataclass(frozen=True, eq=False)
class Convolution(Layer):
    """Convolution or fully connected layer (kernel 1x1 on a 1x1 map, or the whole map), requantised, then optionally a
    table.

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels]
    bias : int32[output channels]
        As in the model: the input's zero point is not yet folded in.
    multiplier : float32[output channels]
        ``f32(f32(xs * ws) / ys)``.
    window : Window
    low, high : int
        Clamp of the requantised code, after the zero point (fused Relu or Clip).
    requantised : str
        Name of the graph tensor between requantisation and table; equals ``output`` without a table.
    table : int8[256] or None
        Indexed by the requantised code plus 128.
    """

    weights: Int8
    bias: npt.NDArray[np.int32]
    multiplier: npt.NDArray[np.float32]
    window: Window
    low: int = -128
    high: int = 127
    requantised: str = ""
    table: Int8 | None = None


@dataclass(frozen=True, eq=False)
class MaxPool(Layer):
    """Maximum over a window (borders count as the least code), then optionally a table."""

    window: Window
    pooled: str = ""
    table: Int8 | None = None


@dataclass(frozen=True, eq=False)
class Pointwise(Layer):
    """A table on every code."""

    table: Int8


@dataclass
class Graph:
    """Layers in order of execution, and the tensors between them.

    ``head`` and ``tail`` are serialised ONNX models that run on the host; empty where there is none. The graph's inputs
    are the head's outputs (or the model's inputs), its outputs the tail's inputs (or the model's outputs).
    """

    tensors: dict[str, Tensor]
    layers: list[Layer]
    inputs: list[str]
    outputs: list[str]
    model: bytes = b""
    head: bytes = b""
    tail: bytes = b""
    notes: list[str] = field(default_factory=list)
