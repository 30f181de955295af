"""The program: the compiler's output for driver and golden machine, and its file format.

A program addresses one *arena* of external memory by offsets from its start: commands, constants, inputs, outputs and
spilled tensors. Standard library only.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from dataclasses import dataclass, field

from . import program_check, records, registers
from .elements import CODE_BITS, tensor_bytes
from .outline import Outline

MAGIC = b"LUTPROG\n"
_HEAD = struct.Struct("<8sIIIII")  # magic, version, configuration hash, bytes of JSON, bytes of blobs, CRC-32 of both


@dataclass(frozen=True, slots=True)
class Queues:
    """The two command streams of one run.

    Attributes
    ----------
    dma, compute : bytes
        Commands of 64 bytes, END last.
    dma_address, compute_address : int
        Where they lie in the arena; multiples of 64.
    """

    dma: bytes
    compute: bytes
    dma_address: int
    compute_address: int


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output of the accelerator: dense codes, NHWC without N, in the arena.

    Attributes
    ----------
    name : str
        Name of the ONNX tensor that passes between host and accelerator.
    shape : tuple of int
        (height, width, channels).
    address : int
        Of the first byte in the arena.
    onnx_shape : tuple of int
        Shape of the ONNX tensor for one inference, batch axis included.
    onnx_axes : tuple of int
        The ONNX tensor is ``codes.reshape(height, width, channels).transpose(onnx_axes).reshape(onnx_shape)``.
    unsigned : bool
        The ONNX tensor is uint8: its value is the code plus 128.
    bits : int
        Of an element, see :mod:`.tensors`.
    """

    name: str
    shape: tuple[int, int, int]
    address: int
    onnx_shape: tuple[int, ...]
    onnx_axes: tuple[int, int, int]
    unsigned: bool
    bits: int = CODE_BITS

    @property
    def size_bytes(self) -> int:
        """Bytes in the arena."""
        return tensor_bytes(self.shape, self.bits)


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """A tensor of the graph that lies in feature memory once a compute command has completed.

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
    """

    name: str
    command: int
    address: int
    row_pitch: int
    pixel_pitch: int
    shape: tuple[int, int, int]
    bits: int = CODE_BITS
    order: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements, without gaps between them."""
        return tensor_bytes(self.shape, self.bits)


@dataclass(frozen=True, slots=True)
class SpilledTensor:
    """A tensor of the graph that is never whole in feature memory: dense codes in the arena once a run has ended.

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
    """

    name: str
    address: int
    shape: tuple[int, int, int]
    bits: int = CODE_BITS
    order: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes in the arena."""
        return tensor_bytes(self.shape, self.bits)


@dataclass(frozen=True, slots=True)
class LayerPrediction:
    """What the compiler predicts of one layer.

    Attributes
    ----------
    name, kind : str
        The ONNX node that the layer comes from, and the kind of the layer.
    commands : tuple of int
        Its commands in the body's compute queue.
    macs : int
        Multiply-accumulates of the layer as the network defines it.
    cycles : int
        Predicted, from the last issue of the layer before to its own last issue.
    array_cycles : int
        Steps that it issues.
    bus_cycles : int
        Beats of its inputs, outputs and constants on the bus, for those that do not stay on the chip.
    bound : str
        ``"bus"`` or ``"array"``, whichever takes longer.
    fold : str
        How its input is folded, for people.
    at_once : int
        Multiply-accumulates that one multiplier's place does in a cycle: 8 for binary values.
    connections, live_connections : int
        For a convolution on the multiplier array: pairs of an input and an output channel, and those with a weight.
    dense_words, model_words, words : int
        Words that all its tiles read for a pixel: if no connection were off, with channels in the model's order, and as
        it is. 1 for other layers.
    dense_cycles : int
        Cycles if no connection were off: the predicted ones, and the steps that are skipped.
    """

    name: str
    kind: str
    commands: tuple[int, ...]
    macs: int
    cycles: int
    array_cycles: int
    bus_cycles: int
    bound: str
    fold: str
    at_once: int = 1
    connections: int = 0
    live_connections: int = 0
    dense_words: int = 1
    model_words: int = 1
    words: int = 1
    dense_cycles: int = 0

    @property
    def is_sparse(self) -> bool:
        """Whether it skips words, because connections are off."""
        return self.words != self.dense_words

    @property
    def multiplier_cycles(self) -> float:
        """Multiplier cycles that its multiply-accumulates take, without those of skipped words."""
        return self.macs * self.words / self.dense_words / self.at_once


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled network for one configuration.

    Attributes
    ----------
    config_hash : int
        Of the configuration that it was compiled for.
    config_name : str
        For messages.
    prologue, body : Queues
        Run once after loading and after a soft reset; run for every inference.
    arena_bytes : int
        Size of the arena.
    constants : bytes
        Weights, parameters, tables and lists.
    constants_address : int
        Where they lie in the arena.
    inputs, outputs : tuple of Port
        The tensors that pass between host and accelerator.
    layers : tuple of LayerPrediction
        In order of execution.
    written, spilled : tuple of WrittenTensor, tuple of SpilledTensor
        For comparison with a reference.
    predicted_cycles : int
        Of one inference, from start to done, on the ideal bus.
    outline : Outline
        What reports say of it.
    batch : int
        Samples of an inference: ports, layers and cycles are those of all of them.
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
    prologue: Queues
    body: Queues
    arena_bytes: int
    constants: bytes
    constants_address: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    layers: tuple[LayerPrediction, ...]
    written: tuple[WrittenTensor, ...]
    spilled: tuple[SpilledTensor, ...]
    predicted_cycles: int
    outline: Outline = field(default=Outline(), repr=False)
    batch: int = 1
    head: bytes = field(default=b"", repr=False)
    tail: bytes = field(default=b"", repr=False)
    model: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        program_check.check(self)

    def utilisation(self, cycles: int, multipliers: int) -> float:
        """The share of the multipliers' cycles that its multiply-accumulates take, given the cycles."""
        return sum(layer.multiplier_cycles for layer in self.layers) / (cycles * multipliers)

    def to_bytes(self) -> bytes:
        """The program file: a header with checksum, JSON, and the binary parts."""
        blobs = bytearray()

        def plain(value: object) -> object:
            if isinstance(value, bytes):
                blobs.extend(value)
                return {"blob": [len(blobs) - len(value), len(value)]}
            if dataclasses.is_dataclass(value):
                return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            if isinstance(value, tuple):
                return [plain(item) for item in value]
            return value

        text = json.dumps(plain(self), separators=(",", ":")).encode()
        checksum = zlib.crc32(text + blobs)
        return _HEAD.pack(MAGIC, registers.VERSION, self.config_hash, len(text), len(blobs), checksum) + text + blobs

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
        if version != registers.VERSION:
            raise ValueError(f"program must be of version {registers.VERSION}, not {version}; compile again")
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
