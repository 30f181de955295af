"""The instruction set: the one definition that hardware, compiler, golden machine and docs share.

A command has 64 bytes, little-endian. Two queues execute commands in order, each at its own pace: the DMA queue (LOAD,
STORE, FILL, BARRIER) and the compute queue (COMPUTE); SYNC and END may be in both. Standard library only.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from .units import MOST_CORES, Queue

# Fields of a command, and the bits that they have.


@dataclass(frozen=True, slots=True)
class Field:
    """Bits ``lsb`` to ``lsb + width - 1`` of a command; two's complement if ``signed``."""

    name: str
    lsb: int
    width: int
    signed: bool
    doc: str

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value."""
        if self.signed:
            return -(1 << self.width - 1), (1 << self.width - 1) - 1
        return 0, (1 << self.width) - 1


#: Name, width (negative if the field is signed) and meaning.
FieldSpec = tuple[str, int, str]


def place_fields(*specs: FieldSpec, lsb: int = 0) -> tuple[Field, ...]:
    """Place fields one above the other, from bit ``lsb`` on."""
    placed = list[Field]()
    for name, width, doc in specs:
        placed.append(Field(name, lsb, abs(width), width < 0, doc))
        lsb += abs(width)
    return tuple(placed)


def fields_end(fields: tuple[Field, ...]) -> int:
    """The bit after the last field; 0 if there is none."""
    return max((field.lsb + field.width for field in fields), default=0)


COMMAND_BYTES = 64
COMMAND_BITS = 8 * COMMAND_BYTES
OPCODE_BITS = 4

#: A step-list entry in external memory: 4 bytes, the offset in the low bits, the two flags on top. Below these stands
#: how many bytes of the word count, from the first on; 0 for all. Only XNOR uses it.
LIST_ENTRY_BYTES = 4
LIST_COUNT_LSB, LIST_COUNT_BITS = 24, 6
LIST_CLEAR = 1 << 30
LIST_FIRE = 1 << 31

#: Bytes of one transfer table, indexed by the code plus 128.
TABLE_BYTES = 256

#: Bits of the argument of a COMPUTE command: each engine may lay fields of its own over all of it.
ARGUMENT_BITS = 56


class Opcode(enum.IntEnum):
    """The low ``OPCODE_BITS`` of every command."""

    END = 1
    SYNC = 2
    LOAD = 3
    STORE = 4
    FILL = 5
    COMPUTE = 6
    BARRIER = 7


Kind_co = TypeVar("Kind_co", bound="CommandFields", covariant=True)


@dataclass(frozen=True, slots=True)
class Format(Generic[Kind_co]):
    """Layout of one command, lowest field first, with its meaning for the manual."""

    kind: type[Kind_co]
    fields: tuple[Field, ...]
    action: str
    notes: str

    @property
    def opcode(self) -> Opcode:
        """The opcode of the command."""
        return self.kind.opcode

    def field(self, name: str) -> Field:
        """The field of this name."""
        return next(field for field in self.fields if field.name == name)

    def with_argument(self, engine: str, fields: tuple[Field, ...]) -> Format[Compute]:
        """This format with the fields of an engine in place of ``argument``."""
        argument = self.field("argument")
        own = tuple(dataclasses.replace(field, lsb=field.lsb + argument.lsb) for field in fields)
        kind = dataclasses.make_dataclass(
            f"{engine.title()}Compute",
            [(field.name, int, dataclasses.field(default=0)) for field in fields],
            bases=(Compute,),
            frozen=True,
            slots=True,
            eq=False,
        )
        left = (field for field in self.fields if field is not argument)
        return Format(kind, (*left, *own), self.action, self.notes)

    def encode(self, **values: int) -> bytes:
        """Pack ``values`` into a command; fields that are not named are zero.

        Raises
        ------
        ValueError
            If a name is not a field, or a value does not fit its field.
        """
        unknown = values.keys() - {field.name for field in self.fields}
        if unknown:
            raise ValueError(f"{self.opcode.name} has no field {sorted(unknown)}")
        word = int(self.opcode)
        for field in self.fields:
            value, (low, high) = int(values.get(field.name, 0)), field.limits
            if not low <= value <= high:
                raise ValueError(f"{self.opcode.name}.{field.name} must be between {low} and {high}, not {value}")
            word |= (value & (1 << field.width) - 1) << field.lsb
        return word.to_bytes(COMMAND_BYTES, "little")

    def decode(self, command: bytes) -> dict[str, int]:
        """The fields of a command of this format, by name."""
        word = int.from_bytes(command, "little")
        values = {}
        for field in self.fields:
            value = word >> field.lsb & (1 << field.width) - 1
            values[field.name] = value - (1 << field.width) if field.signed and value >> field.width - 1 else value
        return values

    def read(self, command: bytes) -> Kind_co:
        """The fields of a command of this format."""
        return self.kind(**self.decode(command))


LOCAL_BITS = 24
EXTERNAL_BITS = 32

# The fields of each command, as classes: the formats derive from them.


def bits(width: int, doc: str) -> Any:
    """A field of a command: its bits, negative if it is signed, and its meaning for the manual. By default it is 0."""
    return dataclasses.field(default=0, metadata={"width": width, "doc": doc})


@dataclass(frozen=True, slots=True, eq=False)
class CommandFields(Mapping[str, int]):
    """The fields of every command after its opcode, in 32 bits; each command adds its own fields.

    It is also a mapping from names to values, for rules that are written for hardware as well.
    """

    opcode: ClassVar[Opcode]

    after: int = bits(1, "1: begin only when every earlier command of this queue has completed.")
    reserved: int = bits(3, "Zero.")
    signal: int = bits(8, "Tokens given to the other queue when this command completes.")
    wait: int = bits(16, "Tokens taken from the other queue before this command begins.")

    def __getitem__(self, name: str) -> int:
        if name not in _names(type(self)):
            raise KeyError(name)
        value: int = getattr(self, name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(_names(type(self)))

    def __len__(self) -> int:
        return len(_names(type(self)))


@functools.cache
def _names(kind: type[CommandFields]) -> dict[str, None]:
    return dict.fromkeys(field.name for field in dataclasses.fields(kind))


@dataclass(frozen=True, slots=True, eq=False)
class End(CommandFields):
    """The end of a queue."""

    opcode = Opcode.END


@dataclass(frozen=True, slots=True, eq=False)
class Sync(CommandFields):
    """A place to wait or to signal."""

    opcode = Opcode.SYNC


@dataclass(frozen=True, slots=True, eq=False)
class Load(CommandFields):
    """From external memory into a local one."""

    opcode = Opcode.LOAD

    external: int = bits(EXTERNAL_BITS, "Source address of the first byte, relative to EXTERNAL_BASE.")
    local: int = bits(LOCAL_BITS, "Destination address of the first byte.")
    memory: int = bits(5, "Destination memory, see *Local memories*.")
    row_pieces: int = bits(16, "Pieces in a row.")
    piece_bytes: int = bits(24, "Bytes in a piece.")
    rows: int = bits(16, "Rows.")
    folds: int = bits(8, "Source rows interleaved into one destination row.")
    external_row: int = bits(-EXTERNAL_BITS, "Source pitch of rows, in bytes.")
    external_fold: int = bits(-EXTERNAL_BITS, "Source pitch of folds, in bytes.")
    local_row: int = bits(-LOCAL_BITS, "Destination pitch of rows, in bytes.")
    local_fold: int = bits(-LOCAL_BITS, "Destination pitch of folds, in bytes.")
    local_piece: int = bits(-LOCAL_BITS, "Destination pitch of pieces, in bytes.")


@dataclass(frozen=True, slots=True, eq=False)
class Store(CommandFields):
    """From the feature memory to external memory."""

    opcode = Opcode.STORE

    external: int = bits(EXTERNAL_BITS, "Destination address of the first byte, relative to EXTERNAL_BASE.")
    local: int = bits(LOCAL_BITS, "Source address of the first byte in the feature memory.")
    row_bytes: int = bits(24, "Bytes in a row.")
    rows: int = bits(16, "Rows.")
    external_row: int = bits(-EXTERNAL_BITS, "Destination pitch of rows, in bytes.")
    local_row: int = bits(-LOCAL_BITS, "Source pitch of rows, in bytes.")


@dataclass(frozen=True, slots=True, eq=False)
class Fill(CommandFields):
    """One byte over some of the feature memory."""

    opcode = Opcode.FILL

    local: int = bits(LOCAL_BITS, "Address of the first byte in the feature memory.")
    piece_bytes: int = bits(24, "Bytes in a piece.")
    rows: int = bits(16, "Pieces.")
    local_row: int = bits(-LOCAL_BITS, "Pitch of pieces, in bytes.")
    value: int = bits(8, "The byte that is written.")


@dataclass(frozen=True, slots=True, eq=False)
class Compute(CommandFields):
    """Windows of an engine."""

    opcode = Opcode.COMPUTE

    engine: int = bits(4, "The engine, see *Engines*.")
    outer: int = bits(16, "Iterations of the outer loop.")
    middle: int = bits(16, "Iterations of the middle loop.")
    inner: int = bits(16, "Iterations of the inner loop.")
    tile_inner: int = bits(1, "1: the inner loop runs over output tiles; 0: the outer one does.")
    steps: int = bits(12, "Steps of a window: entries of the step list.")
    list: int = bits(12, "First entry of the step list.")
    source: int = bits(LOCAL_BITS, "Feature address of the first window.")
    source_outer: int = bits(-LOCAL_BITS, "Source pitch of the outer loop, in bytes.")
    source_middle: int = bits(-LOCAL_BITS, "Source pitch of the middle loop, in bytes.")
    source_inner: int = bits(-LOCAL_BITS, "Source pitch of the inner loop, in bytes.")
    destination: int = bits(LOCAL_BITS, "Feature address of the first result.")
    destination_outer: int = bits(-LOCAL_BITS, "Destination pitch of the outer loop, in bytes.")
    destination_middle: int = bits(-LOCAL_BITS, "Destination pitch of the middle loop, in bytes.")
    destination_inner: int = bits(-LOCAL_BITS, "Destination pitch of the inner loop, in bytes.")
    weight: int = bits(20, "First word in the weight memory; tile t begins `weight_words * t` words on.")
    parameter: int = bits(16, "First word in the parameter memory.")
    parameter_shared: int = bits(
        1, "1: every group of every tile uses that one word; 0: they take consecutive words, each tile from its first."
    )
    lanes: int = bits(9, "Results of a window in every tile but the last.")
    last_lanes: int = bits(9, "Results of a window in the last tile.")
    zero_point: int = bits(-8, "Added after rounding.")
    low: int = bits(-8, "Least result, after the zero point.")
    high: int = bits(-8, "Greatest result, after the zero point.")
    table_enable: int = bits(1, "1: results pass through a transfer table.")
    table: int = bits(8, "The transfer table.")
    skip: int = bits(
        12, "List entries that every window but the first of an inner loop leaves out, for engines with streams."
    )
    packed: int = bits(1, "1: a result is written as one bit, 1 where its code is not negative.")


@dataclass(frozen=True, slots=True, eq=False)
class AnyCompute(Compute):
    """Windows of any engine, whatever its own fields are."""

    argument: int = bits(ARGUMENT_BITS, "The engine's own fields, see *Engines*; bits that it does not use are zero.")


@dataclass(frozen=True, slots=True, eq=False)
class Barrier(CommandFields):
    """A meeting of cores."""

    opcode = Opcode.BARRIER

    group: int = bits(MOST_CORES, "The cores that meet: bit i for core i. This core is one of them.")


# The formats: where the fields lie, and what the commands do.


def _format(kind: type[Kind_co], *, action: str, notes: str) -> Format[Kind_co]:
    specs = ((field.name, field.metadata["width"], field.metadata["doc"]) for field in dataclasses.fields(kind))
    fields = place_fields(*specs, lsb=OPCODE_BITS)
    if fields_end(fields) > COMMAND_BITS:
        raise ValueError(f"{kind.opcode.name} needs {fields_end(fields)} bits, but a command has {COMMAND_BITS}")
    return Format(kind, fields, action, notes)


END = _format(
    End,
    action="wait until every earlier command of this queue has completed\nqueue.done = True",
    notes="When both queues are done the run is done: the tokens must be zero again, and the interrupt is raised.",
)

SYNC = _format(
    Sync,
    action="take(wait)\ngive(signal)",
    notes="Only the header: a place to wait or to signal without other work.",
)

LOAD = _format(
    Load,
    action="""\
for row in range(rows):
    for fold in range(folds):
        run = external[external + row * external_row + fold * external_fold:][:row_pieces * piece_bytes]
        for piece in range(row_pieces):
            at = local + row * local_row + fold * local_fold + piece * local_piece
            memory[at:at + piece_bytes] = run[piece * piece_bytes:][:piece_bytes]""",
    notes="Each (row, fold) is one run of contiguous source bytes, split into bursts of at most 16 beats that never "
    "cross 4 KiB. A memory other than FEATURE takes one piece (`rows`, `folds` and `row_pieces` are 1), with `local` "
    "and `piece_bytes` multiples of its unit: `lanes` bytes for WEIGHT, 8 for PARAMETER, 1 for TABLE, 4 for LIST, and "
    "for an engine's own what stands under *Engines*. Counts of zero, runs of 2^32 bytes or more and memories that the "
    "configuration lacks are illegal.",
)

STORE = _format(
    Store,
    action="""\
for row in range(rows):
    external[external + row * external_row:][:row_bytes] = feature[local + row * local_row:][:row_bytes]""",
    notes="Completes when the last write response has arrived. Counts of zero are illegal.",
)

FILL = _format(
    Fill,
    action="for row in range(rows):\n    feature[local + row * local_row:][:piece_bytes] = value",
    notes="Writes `lanes` bytes a cycle while no result is written. Counts of zero are illegal.",
)

COMPUTE = _format(
    AnyCompute,
    action="""\
for i, j, k in product(range(outer), range(middle), range(inner)):
    tile = k if tile_inner else i
    window = source + i * source_outer + j * source_middle + k * source_inner
    words = [feature[window + offset(list + s):][:LANES] for s in range(skip if k else 0, steps)]
    results = engine(words, weights[weight + tile * weight_words:][:weight_words])
    results = requantise(results, parameters[parameter + tile * groups:]) -> table -> [:lanes or last_lanes]
    if packed:
        results = pack(results >= 0)
    feature[destination + i * destination_outer + j * destination_middle + k * destination_inner:] = results""",
    notes="`groups` is `lanes / REQUANT_LANES`, rounded up. A window's sums begin at the list entry with the flag "
    "`clear` and its result leaves at the one with the flag `fire`: the first and the last entry of its list. Commands "
    "without `after` follow one another without a gap, except where the engine changes, or where a window has fewer "
    "steps than the windows of the command before have results. Packed results lie side by "
    "side from the lowest bit of the first byte on, and the rest of their last byte is 0. With less than eight columns "
    "`tile_inner` is 1, and the windows of an inner loop write one string of bits, from the destination of each on; "
    "whole pieces of `COLUMNS` bits for every tile but the last. Counts of zero, lanes beyond what the engine gives, "
    "for engines without streams a `skip`, and `packed` with whole results or in a configuration without an engine of "
    "binary values, are illegal. What the engines compute, and what they ask of a command, stands under *Engines*.",
)

BARRIER = _format(
    Barrier,
    action="wait until every earlier command has completed\nwait until every core of the group is here",
    notes="Illegal where there is one core. The cores of a group meet where all are at a BARRIER with this group: what "
    "one of them has stored before, each may load after it. A group without this core, or with cores that there are "
    "not, is an illegal field. Where a core of it has ended, or ends before it is here, the run stops with BARRIER.",
)

_ALL: tuple[Format[CommandFields], ...] = (END, SYNC, LOAD, STORE, FILL, COMPUTE, BARRIER)
FORMATS = {fmt.opcode: fmt for fmt in _ALL}
_OPCODES: dict[Queue, tuple[Opcode, ...]] = {
    Queue.DMA: (Opcode.END, Opcode.SYNC, Opcode.LOAD, Opcode.STORE, Opcode.FILL, Opcode.BARRIER),
    Queue.COMPUTE: (Opcode.END, Opcode.SYNC, Opcode.COMPUTE),
}


def opcodes(queue: Queue, cores: int) -> tuple[Opcode, ...]:
    """Return the commands that a queue executes, in an accelerator of so many cores."""
    return tuple(opcode for opcode in _OPCODES[queue] if opcode is not Opcode.BARRIER or cores > 1)
