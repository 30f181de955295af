"""The program: the compiler's output for driver and golden machine, and the format of its file.

A program addresses one *arena* of external memory by offsets from its start: commands, constants, inputs, outputs and
spilled tensors.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from .. import records
from ..elements import CODE_BITS, run_bytes, tensor_bytes
from ..isa import COMMAND_BYTES
from ..units import Queue
from . import program_check
from .outline import CoreOutline, LayerOutline, Outline

# Tensors of a program: those that pass between host and accelerator, and those that verification compares.


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
        Addresses of the first byte in the arena: one, or one for each core where each has samples of its own.
    onnx_shape : tuple of int
        Shape of the ONNX tensor for one inference, batch axis included.
    onnx_axes : tuple of int
        The ONNX tensor is ``codes.reshape(height, width, channels).transpose(onnx_axes).reshape(share_shape)``, for
        each address in turn along its first axis.
    unsigned : bool
        The ONNX tensor is uint8: its value is the code plus 128.
    bits : int
        Bits of an element, see :mod:`~lutterfly.golden.elements`.
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
        Bits of an element.
    order : tuple of int
        The channel of the model's tensor that each channel is; empty if the order is the model's.
    row, channel : int
        The first row and the first channel of the part in the tensor.
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
        Address of the first byte in the arena.
    shape : tuple of int
        (height, width, channels).
    bits : int
        Bits of an element.
    order : tuple of int
        The channel of the model's tensor that each channel is; empty if the order is the model's.
    row, channel : int
        The first row and the first channel of the part in the tensor.
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


# The commands of a core, by queue and run.


@dataclass(frozen=True, slots=True)
class QueueProgram:
    """The commands of one queue in a run.

    Attributes
    ----------
    commands : bytes
        64 bytes for each command, END last.
    address : int
        Their address in the arena; a multiple of 64.
    """

    commands: bytes
    address: int

    def __len__(self) -> int:
        """Count the commands, END included."""
        return len(self.commands) // COMMAND_BYTES


@dataclass(frozen=True, slots=True)
class Queues:
    """The queues of a core in one run.

    Attributes
    ----------
    dma, compute : QueueProgram
    """

    dma: QueueProgram
    compute: QueueProgram

    def __getitem__(self, queue: Queue) -> QueueProgram:
        return self.dma if queue is Queue.DMA else self.compute


@dataclass(frozen=True, slots=True)
class CoreProgram:
    """The part of a program that one core executes.

    Attributes
    ----------
    prologue, body : Queues
        The run once after loading and after a soft reset, and the run for every inference.
    layers : tuple of LayerOutline
        Its layers, in order of execution.
    written : tuple of WrittenTensor
        The tensors that verification compares in its feature memory.
    spilled : tuple of SpilledTensor
        The tensors that it compares in the arena.
    outline : CoreOutline
        Its commands and memories, for reports.
    """

    prologue: Queues
    body: Queues
    layers: tuple[LayerOutline, ...]
    written: tuple[WrittenTensor, ...]
    spilled: tuple[SpilledTensor, ...] = ()
    outline: CoreOutline = field(default=CoreOutline(), repr=False)


MAGIC = b"LUTPROG\n"
#: Version of the file's format. Version 1 had a layer's cycles and its memory in two places.
FILE_VERSION = 2
_HEAD = struct.Struct("<8sIIIII")  # magic, version, configuration hash, bytes of JSON, bytes of blobs, CRC-32 of both


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled network for one configuration.

    Attributes
    ----------
    config_hash : int
        Hash of the configuration that it was compiled for.
    config_name : str
        For messages.
    cores : tuple of CoreProgram
        The part of each core.
    arena_bytes : int
        Size of the arena.
    body_bytes : int
        Bytes of it that an inference needs, from its start on; the rest is the prologue's.
    constants : bytes
        Weights, parameters, tables and lists that stay in the local memories.
    constants_address : int
        Their address in the arena.
    streamed : bytes
        Constants that every inference loads.
    streamed_address : int
        Their address in the arena.
    inputs, outputs : tuple of Port
        The tensors that pass between host and accelerator.
    predicted_cycles : int
        The cycles of one inference, from start to done, on the ideal bus.
    outline : Outline
        The network as a whole, for reports; empty if no compiler made the program.
    batch : int
        Samples of an inference: ports and cycles are those of all of them, and layers of a core those of its share.
    head, tail : bytes
        ONNX models that run on the host before and after the accelerator, sample by sample; empty if there is none.
    model : bytes
        The ONNX model as the user gave it, for `verify`.

    Raises
    ------
    ValueError
        If a number is out of range, see :func:`.program_check.check`.
    """

    config_hash: int
    config_name: str
    cores: tuple[CoreProgram, ...]
    arena_bytes: int
    body_bytes: int
    constants: bytes
    constants_address: int
    streamed: bytes
    streamed_address: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    predicted_cycles: int
    outline: Outline = field(repr=False)
    batch: int
    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    model: bytes = field(repr=False)

    def __post_init__(self) -> None:
        program_check.check(self)

    @property
    def shares(self) -> int:
        """The number of parts in which samples go to cores, each to one; 1 where all cores share a sample, or one core
        has all of them."""
        return len(self.inputs[0].addresses)

    @property
    def layers(self) -> tuple[LayerOutline, ...]:
        """The layers of all cores, each in order of execution."""
        return tuple(layer for core in self.cores for layer in core.layers)

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """Give address and bytes of the arena's contents before an inference: streamed constants and commands."""
        yield self.streamed_address, self.streamed
        for core in self.cores:
            yield from ((core.body[queue].address, core.body[queue].commands) for queue in Queue)

    def utilisation(self, cycles: int, multipliers: int) -> float:
        """The share of the multipliers' cycles that its multiply-accumulates take, given the cycles and how many
        multipliers a core has."""
        return sum(layer.multiplier_cycles for layer in self.layers) / (cycles * multipliers * len(self.cores))

    def to_bytes(self) -> bytes:
        """The program file: a header with checksum, JSON, and the binary parts."""
        blobs = bytearray()
        text = json.dumps(records.to_plain(self, blobs), separators=(",", ":")).encode()
        checksum = zlib.crc32(text + blobs)
        return _HEAD.pack(MAGIC, FILE_VERSION, self.config_hash, len(text), len(blobs), checksum) + text + blobs

    @classmethod
    def from_bytes(cls, data: bytes) -> Program:
        """Read what :meth:`to_bytes` wrote.

        Raises
        ------
        ValueError
            If the data is not a program, is of another version, is truncated or damaged.
        """
        if not data.startswith(MAGIC):
            raise ValueError(
                "program must begin with the Lutterfly magic number; compile the model with `lutterfly compile`"
            )
        if len(data) < _HEAD.size:
            raise ValueError(
                f"program must have a header of {_HEAD.size} bytes, not {len(data)}: "
                "the file is truncated; compile again"
            )
        _, version, config_hash, text_bytes, blob_bytes, checksum = _HEAD.unpack_from(data)
        if version != FILE_VERSION:
            raise ValueError(
                f"program must be a file of version {FILE_VERSION}, not {version}, which another release of lutterfly "
                "wrote; compile the model again"
            )
        expected = _HEAD.size + text_bytes + blob_bytes
        if len(data) != expected:
            raise ValueError(
                f"program must have {expected} bytes, not {len(data)}: the file is truncated or damaged; compile again"
            )
        if zlib.crc32(data[_HEAD.size :]) != checksum:
            raise ValueError("program must match its checksum, and does not: the file is damaged; compile again")
        text, blobs = data[_HEAD.size : _HEAD.size + text_bytes], data[_HEAD.size + text_bytes :]
        try:
            program: Program = records.read(cls, records.parse(text.decode()), "program", blobs)
            if program.config_hash != config_hash:
                raise ValueError(f"program.config_hash must be the header's ({config_hash}), not {program.config_hash}")
        except ValueError as error:
            raise ValueError(f"{error}; the file is damaged: compile again") from error
        return program
