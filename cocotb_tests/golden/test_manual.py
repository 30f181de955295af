"""Pages of docs/ that tables of the contract make; run this file to print those of the link."""

from __future__ import annotations

from pathlib import Path

import pytest

from lutterfly.golden import isa, manual, registers
from lutterfly.golden.link import frames, operations
from lutterfly.golden.link.operations import RULES, STATUS_MEANINGS, Operation, Status

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


# The tables of docs/link.md are those of the code; run this file to print them.

PAGE = DOCS / "link.md"


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def tables() -> list[str]:
    fields = [(f"`{name}`", at, size) for name, (at, size) in frames.FIELDS.items()]
    requests = [
        (
            int(operation),
            f"`{operation.name}`",
            rule.address or "ignored",
            rule.length.value[0],
            ("as much" if rule.has_data else "none"),
            rule.answer or "none",
            "once" if rule.once else "again",
            rule.doc,
        )
        for operation, rule in RULES.items()
    ]
    statuses = [(int(status), f"`{status.name}`", STATUS_MEANINGS[status]) for status in Status]
    identity = [(4 * place, f"`{name}`", meaning) for place, (name, meaning) in enumerate(operations.IDENTITY.items())]
    return [
        table(("Field", "At", "Bytes"), fields),
        table(("Code", "Operation", "`address`", "`length`", "Data", "Answer", "Repeated", "Meaning"), requests),
        table(("Code", "Status", "Meaning"), statuses),
        table(("At", "Word", "Meaning"), identity),
    ]


def test_every_table_stands_in_the_page() -> None:
    page = PAGE.read_text()
    for expected in tables():
        assert expected in page, f"\n{expected}"


def test_every_code_has_its_rule_and_its_meaning() -> None:
    assert set(RULES) == set(Operation) - {Operation.NAK}
    assert set(STATUS_MEANINGS) == set(Status)


def test_numbers_of_the_page() -> None:
    page = PAGE.read_text()
    for text in (
        f"at most {operations.MAX_DATA} bytes of data",
        f"{frames.HEADER_BYTES} bytes of header",
        f"{frames.MOST_ENCODED_BYTES:,} bytes",
        f"{frames.INITIAL_RATE:,} bits a second",
        f"between {frames.LEAST_BIT_TIME} and {frames.MOST_BIT_TIME:,}",
        f"version {operations.LINK_VERSION} of the link",
    ):
        assert text in page, text


if __name__ == "__main__":
    print(*tables(), sep="\n")
