"""The quantised graph: what the frontend makes of an ONNX file, and what the compiler's passes work on.

Every tensor is int8 codes in NHWC order without N: ``int8[height, width, channels]``. A vector of K features is
``int8[1, 1, K]``. uint8 tensors of the model are shifted by 128 to int8 codes, and so are their zero points. The codes
of a binary tensor, whose elements have one bit, are +1 and -1; a layer that writes one gives +1 for each code that is
not negative, behind its table if it has one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..golden.elements import CODE_BITS, run_bytes, tensor_bytes
from ..golden.fpc import Finish, Stages

Int8 = npt.NDArray[np.int8]

#: Height, width and channels.
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class View:
    """An ONNX tensor that holds the same codes as a tensor of the graph.

    ``onnx = codes[height, width, channels].transpose(axes).reshape(shape)``, plus 128 as uint8 if ``unsigned``. Before,
    the codes are looked up in ``table`` int8[256] if there is one, and with ``pads`` (top, left, bottom, right) they
    get a border of the code ``border``.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, int, int]
    unsigned: bool
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    border: int = 0
    table: Int8 | None = field(default=None, compare=False, repr=False)


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
    bits : int
        Of an element: 8, or 1 for +1 and -1.
    order : tuple of int
        Which channel of the model's tensor each channel is; empty where none is in another place.
    """

    name: str
    shape: tuple[int, int, int]
    scale: float
    zero_point: int
    views: tuple[View, ...]
    bits: int = CODE_BITS
    order: tuple[int, ...] = ()

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a pixel: each begins at a byte, and its channels lie side by side."""
        return run_bytes(self.shape[2], self.bits)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row whose pixels lie side by side."""
        return self.shape[1] * self.pixel_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor where its rows lie side by side, as in external memory."""
        return tensor_bytes(self.shape, self.bits)


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

    def inside(self, axis: int, size: int, output: int) -> range:
        """The elements of the kernel along an axis that lie in an input of ``size``, for one row or column of the
        result."""
        start, dilation = output * self.stride[axis] - self.pads[axis], self.dilation[axis]
        first = max(-(start // dilation), 0)
        end = min(-((start - size) // dilation), self.kernel[axis])
        return range(first, end) if first < end else range(0)

    def counts(self, height: int, width: int) -> npt.NDArray[np.int64]:
        """How many elements of each window lie in an input of ``height`` x ``width``: int64[rows, columns]."""
        down, across = (
            [len(self.inside(axis, size, output)) for output in range(outputs)]
            for axis, (size, outputs) in enumerate(zip((height, width), self.output_size(height, width), strict=True))
        )
        return np.outer(down, across)


@dataclass(frozen=True, eq=False)
class Layer:
    """One operation on tensors of the graph: ``name`` is its ONNX node's, for messages.

    A tensor may stand twice among ``inputs``.
    """

    name: str
    inputs: tuple[str, ...]
    output: str

    @property
    def input(self) -> str:
        """The first input: the only one of most layers."""
        return self.inputs[0]

    def kind(self, source: Shape, target: Shape) -> str:
        """What it is, in a word or two, between an input and an output of these shapes."""
        return type(self).__name__

    def macs(self, target: Shape) -> int:
        """Multiply-accumulates for an output of this shape, as the network defines them."""
        return 0

    def normalised(self, zero_point: int) -> Layer:
        """A layer that computes the same from codes alone, where these stood for codes less a zero point before."""
        return self


@dataclass(frozen=True, eq=False)
class Convolution(Layer):
    """Convolution or fully connected layer (kernel 1x1 on a 1x1 map, or the whole map), requantised, then optionally a
    table.

    Attributes
    ----------
    weights : int8[output channels, kernel rows, kernel columns, input channels / groups]
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
    groups : int
        Output channel o reads the input channels of group ``o // (output channels / groups)`` alone: with as many
        groups as input channels the convolution is depthwise.
    """

    weights: Int8
    bias: npt.NDArray[np.int32]
    multiplier: npt.NDArray[np.float32]
    window: Window
    low: int = -128
    high: int = 127
    requantised: str = ""
    table: Int8 | None = None
    groups: int = 1

    def kind(self, source: Shape, target: Shape) -> str:
        """By its groups, or whether one window is the whole map."""
        if self.groups > 1:
            return "depthwise" if self.groups == len(self.weights) else "grouped convolution"
        is_whole_map = self.window.kernel == source[:2] and target[:2] == (1, 1)
        return "fully connected" if is_whole_map else "convolution"

    def macs(self, target: Shape) -> int:
        """One for each weight that an element of the output takes."""
        return target[0] * target[1] * self.weights.size

    def normalised(self, zero_point: int) -> Convolution:
        """What a zero point adds to each sum is subtracted from the bias.

        ``sum((x - zx) * w) + b = sum(x * w) + (b - zx * sum(w))``, modulo 2**32. Borders hold zx, so that this holds
        there too.
        """
        if zero_point == 0:
            return self
        sums = self.weights.astype(np.int64).sum(axis=(1, 2, 3))
        bias = (self.bias.astype(np.int64) - zero_point * sums).astype(np.int32)
        return dataclasses.replace(self, bias=bias)


@dataclass(frozen=True, eq=False)
class BinaryConvolution(Convolution):
    """Convolution of a binary tensor with weights that are +1 and -1.

    Inner products are requantised like those of others: without a scale, a negative bias is a threshold.

    Attributes
    ----------
    pad : int
        What the border counts as: +1, -1, or 0 for nothing.
    """

    pad: int = field(kw_only=True)

    def kind(self, source: Shape, target: Shape) -> str:
        """As a convolution, by its groups and its window."""
        return f"binary {super().kind(source, target)}"


@dataclass(frozen=True, eq=False)
class AveragePool(Convolution):
    """Average pooling: the depthwise convolution of unit weights, with the bias 0.

    Its multiplier is ``f32(xs / f32(ys * n))``, n being the elements of a window.

    Attributes
    ----------
    multipliers : dict of int to float32
        Where a border does not count: the multiplier by the elements of a window that lie in the input, see
        :meth:`Window.counts`. Empty where all windows have one.
    """

    multipliers: Mapping[int, np.float32] = field(default_factory=dict)

    def kind(self, source: Shape, target: Shape) -> str:
        """No convolution of the network's."""
        return "average pooling"

    def macs(self, target: Shape) -> int:
        """None: only the accelerator multiplies."""
        return 0


@dataclass(frozen=True, eq=False)
class Pad(Convolution):
    """A border of the zero point: the depthwise convolution of one unit weight with ``window.pads``.

    Its bias is 0 and its multiplier 1.
    """

    def kind(self, source: Shape, target: Shape) -> str:
        """No convolution of the network's."""
        return "border"

    def macs(self, target: Shape) -> int:
        """None: only the accelerator multiplies."""
        return 0


@dataclass(frozen=True, eq=False)
class FastPointwise(Layer):
    """Pointwise convolution by the stages of a butterfly, requantised, then optionally a table, see ``golden/fpc.py``.

    Attributes
    ----------
    stages : Stages
    finish : Finish
        Of the output channels.
    zero_point : int
        That the input's codes lose, as an int8 code.
    requantised : str
        Name of the graph tensor between finish and table; equals ``output`` without a table.
    table : int8[256] or None
        Indexed by the requantised code plus 128.
    """

    stages: Stages
    finish: Finish
    zero_point: int
    requantised: str = ""
    table: Int8 | None = None

    def kind(self, source: Shape, target: Shape) -> str:
        """As its technique is called."""
        return "fast pointwise convolution"

    def macs(self, target: Shape) -> int:
        """One for each weight that is not multiplied with a null channel, and whose result is kept."""
        return target[0] * target[1] * self.stages.pattern.live_multiplications


@dataclass(frozen=True, eq=False)
class MaxPool(Layer):
    """Maximum over a window (borders count as the least code), then optionally a table."""

    window: Window
    pooled: str = ""
    table: Int8 | None = None

    def kind(self, source: Shape, target: Shape) -> str:
        """With its table or without."""
        return "max pooling"


@dataclass(frozen=True, eq=False)
class Pointwise(Layer):
    """A table on every code; into a binary tensor it may be none.

    Attributes
    ----------
    table : int8[256] or None
    """

    table: Int8 | None

    def kind(self, source: Shape, target: Shape) -> str:
        """What it has."""
        return "table"


@dataclass(frozen=True, eq=False)
class Add(Layer):
    """Sum of two tensors of one shape, requantised, then optionally a table.

    The result for the codes a of the first input and b of the second is
    ``clip(rint(f32((first[a + 128] + second[b + 128]) * 2**-fraction)) + offset, low, high)``, halves to even.

    Attributes
    ----------
    first, second : int64[256]
        Fixed point, signed, of at most 36 bits; all zero points are inside ``second``.
    fraction : int
        Bits behind the binary point, at most 32.
    offset : int
        -128 where the tensors of the model are uint8, else 0: float32 rounds the uint8 element, not the code.
    low, high : int
        Clamp of the code (fused Relu or Clip).
    requantised : str
        Name of the graph tensor between sum and table; equals ``output`` without a table.
    table : int8[256] or None
        Indexed by the requantised code plus 128.
    """

    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    fraction: int
    offset: int = 0
    low: int = -128
    high: int = 127
    requantised: str = ""
    table: Int8 | None = None

    def kind(self, source: Shape, target: Shape) -> str:
        """Of two tensors."""
        return "addition"


@dataclass(frozen=True, eq=False)
class Concat(Layer):
    """The channels of all inputs, one input behind the other.

    Attributes
    ----------
    tables : tuple of int8[256] or None
        What each input's codes are looked up in; None where they stay as they are.
    """

    tables: tuple[Int8 | None, ...]

    def kind(self, source: Shape, target: Shape) -> str:
        """With its tables or without."""
        return "concatenation"


@dataclass(frozen=True, eq=False)
class Slice(Layer):
    """The channels ``first`` to ``first + channels - 1`` of the input."""

    first: int
    channels: int

    def kind(self, source: Shape, target: Shape) -> str:
        """Of channels."""
        return "slice"


@dataclass
class Graph:
    """Layers in order of execution, and the tensors between them.

    ``head`` and ``tail`` are serialised ONNX models that run on the host; empty where there is none. The graph's inputs
    are the head's outputs (or the model's inputs), its outputs the tail's inputs (or the model's outputs). Tensors hold
    ``batch`` samples, head and tail one, see :func:`.compiler.batch.batched`.
    """

    tensors: dict[str, Tensor]
    layers: list[Layer]
    inputs: list[str]
    outputs: list[str]
    model: bytes = b""
    head: bytes = b""
    tail: bytes = b""
    notes: list[str] = field(default_factory=list)
    batch: int = 1
