"""Amaranth views of :mod:`lutterfly.golden.isa`, and the shapes of commands and errors between units."""

from collections.abc import Iterable

from amaranth.hdl import Module, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...golden import isa
from ...golden.engines.engine import Engine
from ...golden.units import ErrorCode, Unit

__all__ = [
    "INDEX_BITS",
    "EngineCommand",
    "ErrorReport",
    "command_shape",
    "field_shape",
    "is_beyond",
    "report_error",
    "report_first",
    "unit_members",
    "view",
]

INDEX_BITS = 16


def command_shape(fmt: isa.Format) -> data.StructLayout:
    """Return the shape of a decoded command for its unit: its index in the queue, then the fields after the header."""
    fields = {"index": unsigned(INDEX_BITS), "after": unsigned(1)}
    for field in fmt.fields:
        if field.lsb >= 32:
            fields[field.name] = signed(field.width) if field.signed else unsigned(field.width)
    return data.StructLayout(fields)


class EngineCommand:
    """A COMPUTE command as one engine reads it: ``command[name]`` is a field of that engine, or one of all engines."""

    def __init__(self, command: data.View, engine: Engine):
        self._command = command
        self._own = {field.name: field for field in engine.fields}

    def __getitem__(self, name: str) -> Value:
        if name not in self._own:
            return self._command[name]
        field = self._own[name]
        bits = self._command.argument[field.lsb : field.lsb + field.width]
        return bits.as_signed() if field.signed else bits


def field_shape(fmt: isa.Format, name: str):
    """Return the shape of one field of a command."""
    return command_shape(fmt)[name].shape


def view(fmt: isa.Format, word: Signal) -> data.View:
    """View the 512 bits of a command as the fields of ``fmt``, the opcode included."""
    fields = {"opcode": data.Field(unsigned(isa.OPCODE_BITS), 0)}
    for field in fmt.fields:
        fields[field.name] = data.Field(signed(field.width) if field.signed else unsigned(field.width), field.lsb)
    return data.View(data.FlexibleLayout(isa.COMMAND_BITS, fields), word)


class ErrorReport(data.Struct):
    """The error that stops a run, and its unit: valid for one cycle; the core keeps the first."""

    valid: unsigned(1)
    code: unsigned(8)
    unit: unsigned(8)
    index: unsigned(INDEX_BITS)
    address: unsigned(32)


def report_error(target: data.View, code: ErrorCode, unit: Unit, index, address=0) -> list:
    """Return assignments that raise an error in ``target``; combinational or registered, as the caller's domain."""
    return [
        target.valid.eq(1),
        target.code.eq(code),
        target.unit.eq(unit),
        target.index.eq(index),
        target.address.eq(address),
    ]


def is_beyond(place: Value, size: int) -> Value:
    """Compute whether ``place`` is beyond a memory of ``size`` entries, a power of two: by bits, without a carry
    chain."""
    return place[ceil_log2(size) :].any()


def unit_members() -> dict[str, wiring.Member]:
    """Return the members that every unit has beside its command, see ``docs/architecture.md``."""
    return {"done": Out(1), "error": Out(ErrorReport), "halt": In(1), "progress": Out(1)}


def report_first(m: Module, error: data.View, problems: Iterable[data.View], failed: Signal) -> None:
    """Register the first of ``problems`` in ``error``, and from then on ``failed``.

    Of several at once the one of the latest stage counts, whose command is the oldest; ``problems`` are in the order of
    the stages. Only the valid bits are examined, so that the fields need no enable.
    """
    problem = Signal(ErrorReport)
    for candidate in problems:
        with m.If(candidate.valid):
            m.d.comb += problem.eq(candidate)
    m.d.sync += [
        error.eq(problem),
        error.valid.eq(problem.valid & ~failed),
        failed.eq(failed | problem.valid),
    ]
