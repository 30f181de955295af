"""The generated pages of docs/ are those of the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from lutterfly.golden import isa, manual, registers

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(manual.pages()))
def test_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == manual.pages()[name], "run `python -m lutterfly.golden.manual`"


def test_every_command_and_register_is_in_the_manual() -> None:
    pages = manual.pages()
    for fmt in isa.FORMATS.values():
        assert f"## {fmt.opcode.name}\n" in pages["isa.md"]
        for field in fmt.fields:
            assert f"`{field.name}`" in pages["isa.md"]
    for register in registers.REGISTERS.values():
        assert f"| {register.address:#04x} | `{register.name}` | {register.access.value} |" in pages["registers.md"]


def test_tables_have_the_width_of_their_head() -> None:
    width = 0
    for line in "".join(manual.pages().values()).splitlines():
        cells = line.replace("\\|", "").count("|") if line.startswith("|") else 0
        assert cells == width or width == 0 or cells == 0
        width = cells


def test_the_manual_names_every_part_of_a_list_entry() -> None:
    (line,) = [line for line in manual.isa_page().splitlines() if line.startswith("An entry has 4 bytes")]
    named = {range(24): "23:0", range(24, 30): "29:24", range(30, 31): "bit 30", range(31, 32): "bit 31"}
    assert sorted(bit for bits in named for bit in bits) == list(range(32))
    assert all(text in line for text in named.values())
    assert "others are zero" not in line
