"""Tensors of a program: those that pass between host and accelerator, and those that verification compares."""

from __future__ import annotations

from dataclasses import dataclass

from ..elements import CODE_BITS, run_bytes, tensor_bytes


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of the accelerator: dense codes, NHWC without N, in the arena.

    Attributes
    ----------
    name : str
        Name of the ONNX tensor that passes between host and accelerator.
    shape : tuple of int
        (height, width, channels).
    addresses : tuple of int
        Of the first byte in the arena; one for each core, where each has samples of its own.
    onnx_shape : tuple of int
        Shape of the ONNX tensor for one inference, batch axis included.
    onnx_axes : tuple of int
        The ONNX tensor is ``codes.reshape(height, width, channels).transpose(onnx_axes).reshape(share_shape)``, for
        each address in turn along its first axis.
    unsigned : bool
        The ONNX tensor is uint8: its value is the code plus 128.
    bits : int
        Of an element, see :mod:`~lutterfly.golden.elements`.
    """

    name: str
    shape: tuple[int, int, int]
    addresses: tuple[int, ...]
    onnx_shape: tuple[int, ...]
    onnx_axes: tuple[int, int, int]
    unsigned: bool
    bits: int = CODE_BITS

    @property
    def size_bytes(self) -> int:
        """Bytes in the arena, at each address."""
        return tensor_bytes(self.shape, self.bits)

    @property
    def share_shape(self) -> tuple[int, ...]:
        """Shape of the part of the ONNX tensor that lies at one address."""
        return (self.onnx_shape[0] // len(self.addresses), *self.onnx_shape[1:])


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """A tensor of the graph, or a part of one, that lies in feature memory once a compute command has completed.

    Attributes
    ----------
    name : str
        Name in the quantised graph.
    command : int
        Index in the body's compute queue of the command that completes it.
    address : int
        Feature address of element (0, 0, 0), in bytes.
    row_pitch, pixel_pitch : int
        Bytes from row to row and from pixel to pixel; channels are contiguous.
    shape : tuple of int
        (height, width, channels).
    bits : int
        Of an element.
    order : tuple of int
        Which channel of the model's tensor each channel is; empty if the order is the model's.
    row, channel : int
        Where the part begins in the tensor.
    """

    name: str
    command: int
    address: int
    row_pitch: int
    pixel_pitch: int
    shape: tuple[int, int, int]
    bits: int = CODE_BITS
    order: tuple[int, ...] = ()
    row: int = 0
    channel: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements, without gaps between them."""
        return tensor_bytes(self.shape, self.bits)


@dataclass(frozen=True, slots=True)
class SpilledTensor:
    """A tensor of the graph, or a part of one, that is never whole in feature memory: dense codes in the arena once a
    run has ended.

    Attributes
    ----------
    name : str
        Name in the quantised graph.
    address : int
        Of the first byte in the arena.
    shape : tuple of int
        (height, width, channels).
    bits : int
        Of an element.
    order : tuple of int
        Which channel of the model's tensor each channel is; empty if the order is the model's.
    row, channel : int
        Where the part begins in the tensor.
    pixel_pitch : int
        Bytes from pixel to pixel, where other channels lie between them; 0 where none do.
    """

    name: str
    address: int
    shape: tuple[int, int, int]
    bits: int = CODE_BITS
    order: tuple[int, ...] = ()
    row: int = 0
    channel: int = 0
    pixel_pitch: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes in the arena, from its first to its last."""
        height, width, channels = self.shape
        own = run_bytes(channels, self.bits)
        return (height * width - 1) * (self.pixel_pitch or own) + own
