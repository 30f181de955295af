"""Block RAMs: a table that takes as many as there are fits, one that takes more is refused."""

from __future__ import annotations

import pytest
from amaranth.hdl import unsigned

from lutterfly.hdl.parts.table_rom import TableRom
from lutterfly.host.transfer.table import BlockRams, block_rams


def rom(bits: int, width: int) -> TableRom:
    entries = [code * code % 251 for code in range(1 << bits)]
    return TableRom(entries, is_signed=False, result=unsigned(width))


@pytest.mark.parametrize(("family", "needed"), [("ecp5", 32), ("xilinx", 16)])
def test_the_limit(family: str, needed: int) -> None:
    table = rom(16, 8)
    assert block_rams(table)[family] == needed
    BlockRams(family, needed).check(table)
    with pytest.raises(ValueError, match=rf"must fit {needed - 1} block RAMs of {family}, not {needed} for 65,536 "):
        BlockRams(family, needed - 1).check(table)


def test_what_lies_in_the_fabric_takes_none() -> None:
    BlockRams("ecp5", 0).check(rom(8, 8))


@pytest.mark.parametrize("text", ["ecp5", "ecp5=", "=3", "ecp5=-1", "ecp5=1.5", "ECP5=4", "ecp5=1,xilinx=2"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"block-rams must be ecp5=COUNT or xilinx=COUNT, not {text}"):
        BlockRams.parse(text)


def test_words() -> None:
    assert BlockRams.parse("xilinx=50") == BlockRams("xilinx", 50)
