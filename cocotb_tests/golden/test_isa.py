"""The instruction set: what golden encodes is what golden and the hardware read."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Const

from lutterfly.golden import isa
from lutterfly.golden.engines import DEPTHWISE, decode
from lutterfly.hdl.parts.isa import INDEX_BITS, command_shape, view

EVERY = pytest.mark.parametrize("fmt", isa.FORMATS.values(), ids=lambda fmt: fmt.opcode.name)


def _samples(fmt: isa.Format) -> list[dict[str, int]]:
    """Every field at its least and at its greatest alone, all of them at once, and random ones."""
    rng = np.random.default_rng(1)
    samples = [{field.name: limit} for field in fmt.fields for limit in field.limits]
    samples += [{field.name: field.limits[end] for field in fmt.fields} for end in (0, 1)]
    samples += [
        {field.name: int(rng.integers(field.limits[0], field.limits[1], endpoint=True)) for field in fmt.fields}
        for _ in range(50)
    ]
    zero = dict.fromkeys((field.name for field in fmt.fields), 0)
    return [zero | sample for sample in samples]


@EVERY
def test_decode_reads_what_encode_wrote(fmt: isa.Format) -> None:
    for values in _samples(fmt):
        command = fmt.encode(**values)
        assert len(command) == isa.COMMAND_BYTES
        assert command[0] & 0xF == fmt.opcode
        assert fmt.decode(command) == values


@EVERY
def test_hardware_reads_what_encode_wrote(fmt: isa.Format) -> None:
    layout = view(fmt, Const(0, isa.COMMAND_BITS)).shape()
    for values in _samples(fmt):
        fields = layout.from_bits(int.from_bytes(fmt.encode(**values), "little"))
        assert {name: int(fields[name]) for name in values} == values
        assert fields["opcode"] == fmt.opcode


@EVERY
def test_fields_do_not_overlap(fmt: isa.Format) -> None:
    taken = 0xF
    for field in fmt.fields:
        bits = (1 << field.width) - 1 << field.lsb
        assert not taken & bits, field.name
        taken |= bits
    assert taken < 1 << isa.COMMAND_BITS


@EVERY
def test_command_shape_has_the_fields_after_the_header(fmt: isa.Format) -> None:
    members = dict(command_shape(fmt).members)
    header = {"reserved", "signal", "wait"}
    assert set(members) == {"index"} | {field.name for field in fmt.fields} - header
    assert members["index"].width == INDEX_BITS
    for field in fmt.fields:
        if field.name not in header:
            assert (members[field.name].width, members[field.name].signed) == (field.width, field.signed)


def test_headers_are_alike() -> None:
    header = list(isa.SYNC.fields)
    assert [field.name for field in header] == ["after", "reserved", "signal", "wait"]
    for fmt in isa.FORMATS.values():
        assert list(fmt.fields[: len(header)]) == header


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"local": 1 << 24}, r"^LOAD\.local must be between 0 and 16777215, not 16777216$"),
        ({"local": -1}, r"^LOAD\.local must be between 0 and 16777215, not -1$"),
        ({"local_row": 1 << 23}, r"^LOAD\.local_row must be between -8388608 and 8388607, not 8388608$"),
        ({"wait": 1 << 16}, r"^LOAD\.wait must be between 0 and 65535, not 65536$"),
        ({"engine": 0}, r"^LOAD has no field \['engine'\]$"),
    ],
)
def test_bad_field(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        isa.LOAD.encode(**values)


def test_format_that_is_too_long_is_refused() -> None:
    @dataclasses.dataclass(frozen=True, eq=False)
    class Long(isa.Sync):
        padding: int = isa.bits(500, "")

    with pytest.raises(ValueError, match=r"^SYNC needs 532 bits, but a command has 512$"):
        isa._format(Long, action="", notes="")


def test_fields_have_names_and_are_a_mapping_too() -> None:
    command = isa.LOAD.encode(rows=3, external_row=-5, after=1)
    fields = isa.LOAD.read(command)
    assert isinstance(fields, isa.Load)
    assert (fields.rows, fields.external_row, fields.after, fields.folds) == (3, -5, 1, 0)
    assert dict(fields) == isa.LOAD.decode(command)
    assert isa.LOAD.encode(**fields) == command
    assert fields.get("value") is None
    with pytest.raises(KeyError):
        # A method of the mapping is no field.
        fields["items"]
    with pytest.raises(TypeError, match="row"):
        isa.Load(row=3)


def test_the_fields_of_an_engine_take_the_place_of_the_argument() -> None:
    fields = decode(DEPTHWISE.format.encode(engine=DEPTHWISE, rows=5, further=2))
    assert isinstance(fields, isa.Compute)
    assert (fields.opcode, fields.engine, fields["rows"], fields["further"]) == (isa.Opcode.COMPUTE, DEPTHWISE, 5, 2)
    assert "argument" not in fields
