"""Conversion of ONNX tensors into the codes in the accelerator's memory, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...golden.machine.images import tensor_codes, tensor_image
from ...golden.program.program import Port

#: The difference between the value of an unsigned tensor and its int8 code.
_SHIFT = 128


def port_dtype(port: Port) -> np.dtype:
    """Return the type of the port's ONNX tensor: int8, or uint8."""
    return np.dtype(np.uint8 if port.unsigned else np.int8)


def check(port: Port, array: object) -> npt.NDArray[np.int8 | np.uint8]:
    """Return ``array`` if it fits the port.

    Raises
    ------
    TypeError
        If it is not an array of the port's type.
    ValueError
        If its shape is not the port's.
    """
    if not isinstance(array, np.ndarray) or array.dtype != port_dtype(port):
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{port.name} must be an array of {port_dtype(port)}, not {found}")
    if array.shape != port.onnx_shape:
        raise ValueError(f"{port.name} must have the shape {list(port.onnx_shape)}, not {list(array.shape)}")
    return array


def to_codes(port: Port, array: npt.NDArray[np.int8 | np.uint8]) -> list[npt.NDArray[np.int8]]:
    """Return the codes of an ONNX tensor, for each share of its samples: int8[height, width, channels]."""
    transposed = [port.shape[axis] for axis in port.onnx_axes]
    axes = sorted(range(len(transposed)), key=port.onnx_axes.__getitem__)
    codes = (array ^ np.uint8(_SHIFT)).view(np.int8) if port.unsigned else array
    shares = codes.reshape(len(port.addresses), *transposed)
    return [np.ascontiguousarray(share.transpose(axes)) for share in shares]


def from_codes(port: Port, codes: Sequence[npt.NDArray[np.int8]]) -> npt.NDArray[np.int8 | np.uint8]:
    """Return the ONNX tensor of ``codes``; the inverse of :func:`to_codes`."""
    shape = port.share_shape
    return np.concatenate([view(one, axes=port.onnx_axes, shape=shape, unsigned=port.unsigned) for one in codes])


def to_images(port: Port, array: npt.NDArray[np.int8 | np.uint8]) -> dict[int, bytes]:
    """Return the bytes of an ONNX tensor in the arena, by address."""
    images = (tensor_image(codes, port.bits).tobytes() for codes in to_codes(port, array))
    return dict(zip(port.addresses, images, strict=True))


def from_images(port: Port, images: Sequence[bytes]) -> npt.NDArray[np.int8 | np.uint8]:
    """Return the ONNX tensor of these bytes of the arena, at each of the port's addresses."""
    codes = [tensor_codes(np.frombuffer(image, np.uint8), port.shape, port.bits) for image in images]
    return from_codes(port, codes)


def view(
    codes: npt.NDArray[np.int8], *, axes: Sequence[int], shape: Sequence[int], unsigned: bool
) -> npt.NDArray[np.int8 | np.uint8]:
    """Convert codes int8[height, width, channels] to an ONNX tensor.

    ``codes.transpose(axes).reshape(shape)``, plus 128 if unsigned.
    """
    array = codes.transpose(axes).reshape(shape)
    return (array.astype(np.int16) + _SHIFT).astype(np.uint8) if unsigned else array
