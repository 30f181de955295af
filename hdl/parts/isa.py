"""Amaranth views of :mod:`lutterfly.golden.isa`, and the shapes that commands and errors travel in."""

from collections.abc import Iterable

from amaranth.hdl import Module, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...golden import isa

__all__ = [
    "INDEX_BITS",
    "ErrorReport",
    "command_shape",
    "field_shape",
    "report",
    "report_first",
    "unit_members",
    "view",
]

INDEX_BITS = 16


def command_shape(fmt: isa.Format) -> data.StructLayout:
    """A decoded command on its way to its unit: its index in the queue, then the fields behind the header."""
    fields = {"index": unsigned(INDEX_BITS), "after": unsigned(1)}
    for field in fmt.fields:
        if field.lsb >= 32:
            fields[field.name] = signed(field.width) if field.signed else unsigned(field.width)
    return data.StructLayout(fields)


def field_shape(fmt: isa.Format, name: str):
    """Shape of one field of a command."""
    return command_shape(fmt)[name].shape


def view(fmt: isa.Format, word: Signal) -> data.View:
    """View the 512 bits of a command as the fields of ``fmt``, the opcode included."""
    fields = {"opcode": data.Field(unsigned(isa.OPCODE_BITS), 0)}
    for field in fmt.fields:
        fields[field.name] = data.Field(signed(field.width) if field.signed else unsigned(field.width), field.lsb)
    return data.View(data.FlexibleLayout(isa.COMMAND_BITS, fields), word)


class ErrorReport(data.Struct):
    """Why and where a run stops: valid for one cycle; the core keeps the first."""

    valid: unsigned(1)
    code: unsigned(8)
    unit: unsigned(8)
    index: unsigned(INDEX_BITS)
    address: unsigned(32)


def report(target: data.View, code: isa.ErrorCode, unit: isa.Unit, index, address=0) -> list:
    """Assignments that raise an error in ``target``; combinational or registered, as the caller's domain."""
    return [
        target.valid.eq(1),
        target.code.eq(code),
        target.unit.eq(unit),
        target.index.eq(index),
        target.address.eq(address),
    ]


def unit_members() -> dict[str, wiring.Member]:
    """What every unit has beside its command, see ``docs/architecture.md``."""
    return {"done": Out(1), "error": Out(ErrorReport), "halt": In(1), "progress": Out(1)}


def report_first(m: Module, error: data.View, problems: Iterable[data.View], failed: Signal) -> None:
    """Register the first of ``problems`` in ``error``, and from then on ``failed``.

    Of several at once that of the latest stage counts, whose command is the oldest: ``problems`` stand in the order of
    the stages. Only what is valid is looked at, so that the fields need no enable.
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
