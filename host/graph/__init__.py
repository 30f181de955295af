"""The quantised graph, which the frontend makes of an ONNX file and the compiler's passes transform.

Every tensor is int8 codes in NHWC order without N: ``int8[height, width, channels]``. A vector of K features is
``int8[1, 1, K]``. uint8 tensors of the model are shifted by 128 to int8 codes, and so are their zero points. The codes
of a binary tensor, whose elements have one bit, are +1 and -1; a layer that writes one gives +1 for each code that is
not negative, after its table if it has one.

Each kind of layer is a class, which contains all that is particular to it: its name, its function, the padding that
it needs, the operations that can be fused into it, and how its channels depend on those that it reads. The passes of
frontend and compiler query the layer (:class:`.layer.Layer`), and know no kinds.
"""

from __future__ import annotations

from . import copies
from .copies import Arrange, Concat, Rearrange, Slice
from .elementwise import Add, ElementwiseMaximum, ElementwiseProduct, MaxPool, Pointwise
from .geometry import (
    ChannelRule,
    CodeEpilogue,
    Int8,
    Phase,
    Reach,
    Selection,
    Shape,
    Tensor,
    View,
    ViewPlace,
    Views,
    Window,
    own_name,
)
from .layer import Finished, Graph, Layer
from .products import (
    AveragePool,
    BinaryConvolution,
    Convolution,
    FastPointwiseConvolution,
    MatrixProduct,
    Pad,
    ProductLayer,
)

__all__ = [
    "Add",
    "Arrange",
    "AveragePool",
    "BinaryConvolution",
    "ChannelRule",
    "CodeEpilogue",
    "Concat",
    "Convolution",
    "ElementwiseMaximum",
    "ElementwiseProduct",
    "FastPointwiseConvolution",
    "Finished",
    "Graph",
    "Int8",
    "Layer",
    "MatrixProduct",
    "MaxPool",
    "Pad",
    "Phase",
    "Pointwise",
    "ProductLayer",
    "Reach",
    "Rearrange",
    "Selection",
    "Shape",
    "Slice",
    "Tensor",
    "View",
    "ViewPlace",
    "Views",
    "Window",
    "copies",
    "own_name",
]
