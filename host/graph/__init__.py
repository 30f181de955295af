"""The quantised graph: what the frontend makes of an ONNX file, and what the compiler's passes work on.

Every tensor is int8 codes in NHWC order without N: ``int8[height, width, channels]``. A vector of K features is
``int8[1, 1, K]``. uint8 tensors of the model are shifted by 128 to int8 codes, and so are their zero points. The codes
of a binary tensor, whose elements have one bit, are +1 and -1; a layer that writes one gives +1 for each code that is
not negative, after its table if it has one.

Each kind of layer has a file of its own, and all that is particular to it stands there: what it is called, what it
computes, what border it wants, what may become part of it, and how its channels depend on those that it reads. The
passes of frontend and compiler ask the layer (:class:`.layer.Layer`), and know no kinds.
"""

from __future__ import annotations

from . import arrangements
from .channels import ChannelRule, Place, Selection, Views
from .finish import CodeFinish
from .finished import Finished
from .graph import Graph
from .kinds.arrange import Arrange
from .kinds.average_pool import AveragePool
from .kinds.binary_convolution import BinaryConvolution
from .kinds.concat import Concat
from .kinds.convolution import Convolution
from .kinds.fast_pointwise import FastPointwise
from .kinds.matrix_product import MatrixProduct
from .kinds.max_pool import MaxPool
from .kinds.pad import Pad
from .kinds.pairs.add import Add
from .kinds.pairs.maximum import Maximum
from .kinds.pairs.multiply import Multiply
from .kinds.pointwise import Pointwise
from .kinds.product import Product
from .kinds.rearrange import Rearrange
from .kinds.slice import Slice
from .layer import Layer
from .phase import Phase
from .tensor import Int8, Shape, Tensor, View, own_name
from .window import Reach, Window

__all__ = [
    "Add",
    "Arrange",
    "AveragePool",
    "BinaryConvolution",
    "ChannelRule",
    "CodeFinish",
    "Concat",
    "Convolution",
    "FastPointwise",
    "Finished",
    "Graph",
    "Int8",
    "Layer",
    "MatrixProduct",
    "MaxPool",
    "Maximum",
    "Multiply",
    "Pad",
    "Phase",
    "Place",
    "Pointwise",
    "Product",
    "Reach",
    "Rearrange",
    "Selection",
    "Shape",
    "Slice",
    "Tensor",
    "View",
    "Views",
    "Window",
    "arrangements",
    "own_name",
]
