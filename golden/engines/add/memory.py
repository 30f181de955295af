"""The memory of ADD: pairs of tables."""

from __future__ import annotations

from ...elements import ADDEND_BITS
from ..engine import OwnMemory

#: Entries of a pair, one table after the other, each indexed by an operand's code plus 128. An entry is a signed
#: fixed-point number of ``ENTRY_BITS`` in the low bits of ``ENTRY_BYTES``.
ENTRIES = 2 * 256
ENTRY_BITS = ADDEND_BITS
ENTRY_BYTES = 8

ADD_TABLE = OwnMemory(
    "ADD_TABLE",
    "Add tables",
    write_bytes=lambda lanes: ENTRY_BYTES,
    unit_bytes=lambda config, own: ENTRIES * ENTRY_BYTES,
    size_bytes=lambda config, own: own.tables * ENTRIES * ENTRY_BYTES,
)
