"""Verilog without the contents that nothing reads, and with others in short blocks."""

from __future__ import annotations

import re

import pytest
from amaranth.back import verilog
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from cocotb_tests.support.tiers import SWEPT_PRESETS
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.parts.device import Ram, Rom
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.hdl.top_ip import generate

_WORD = re.compile(r"\w+ ?\[(\d+)\] = \d+'([dh])([0-9a-f]+);")


def contents(text: str) -> list[list[tuple[int, int]]]:
    """Address and value of the words of each block."""
    blocks = re.findall(r"^  initial begin\n(.*?)^  end$", text, re.MULTILINE | re.DOTALL)
    return [
        [(int(place), int(value, 10 if base == "d" else 16)) for place, base, value in _WORD.findall(block)]
        for block in blocks
    ]


def test_zeros_are_left_out() -> None:
    ram = Ram(width=8, depth=100)
    assert contents(to_verilog(ram, name="ram")) == []
    whole = verilog.convert(Ram(width=8, depth=100), name="ram", emit_src=False, strip_internal_attrs=True)
    assert contents(whole) == [[(place, 0) for place in range(100)]]


@pytest.mark.parametrize("width", [8, 32, 40])
@pytest.mark.parametrize("depth", [16, 64, 128, 256])
def test_contents_stand_in_short_blocks(width: int, depth: int) -> None:
    """All words in order, the zeros among them: 64 to a block."""
    words = [place * place % 7 for place in range(depth)]
    blocks = contents(to_verilog(Rom(width=width, words=words, is_block=True), name="rom"))
    assert [len(block) for block in blocks] == [64] * (depth // 64) + [depth % 64] * (depth % 64 > 0)
    assert [word for block in blocks for word in block] == list(enumerate(words))


class Both(wiring.Component):
    """A memory with contents and one without."""

    def __init__(self):
        super().__init__({"address": In(4), "word": Out(4)})

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ram = ram = Ram(width=4, depth=16)
        m.submodules.rom = rom = Rom(width=4, words=[3, 0, 1, 0] * 4, is_block=False)
        m.d.comb += [
            ram.read_address.eq(self.address),
            ram.write_address.eq(self.address),
            ram.write_enable.eq(1),
            rom.enable.eq(1),
            rom.read_address.eq(self.address),
            ram.write_data.eq(rom.read_data),
            self.word.eq(ram.read_data),
        ]
        return m


def test_what_is_beside_them_stays() -> None:
    text = to_verilog(Both(), name="both")
    plain = verilog.convert(Both(), name="both", emit_src=False, strip_internal_attrs=True)
    zeros = re.compile(r"^  initial begin\n(?:    \w+\[\d+\] = 4'h0;\n)+  end\n", re.MULTILINE)
    assert text == zeros.sub("", plain) != plain
    assert contents(text) == [list(enumerate([3, 0, 1, 0] * 4))]


@pytest.mark.regress
@pytest.mark.parametrize("preset", SWEPT_PRESETS)
def test_the_core_has_no_contents(preset: str) -> None:
    assert contents(generate(PRESETS[preset])) == []
