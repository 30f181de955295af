"""Tensors of the graph: int8 codes in NHWC order, and the ONNX tensors that they are."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...golden.elements import CODE_BITS, run_bytes, tensor_bytes

Int8 = npt.NDArray[np.int8]

#: Height, width and channels.
Shape = tuple[int, int, int]


def own_name(wanted: str, *taken: Container[str]) -> str:
    """A name that none of ``taken`` holds, for a tensor that the model does not have: names in a file may be any."""
    while any(wanted in names for names in taken):
        wanted += "'"
    return wanted


@dataclass(frozen=True)
class View:
    """An ONNX tensor that holds the same codes as a tensor of the graph.

    ``onnx = codes[height, width, channels].transpose(axes).reshape(shape)``, plus 128 as uint8 if ``unsigned``. Before,
    the codes are looked up in ``table`` int8[256] if there is one, and with ``pads`` (top, left, bottom, right) they
    get a border of the code ``border``. With an ``order``, they are ``codes.reshape(-1)[order]``, without
    transposing.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[int, int, int]
    unsigned: bool
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    border: int = 0
    table: Int8 | None = field(default=None, compare=False, repr=False)
    order: npt.NDArray[np.int64] | None = field(default=None, compare=False, repr=False)


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
