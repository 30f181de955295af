"""The tables of docs/link.md are those of the code; run this file to print them."""

from __future__ import annotations

from pathlib import Path

from lutterfly.golden.link import frames, operations
from lutterfly.golden.link.operations import RULES, STATUS_MEANINGS, Operation, Status

PAGE = Path(__file__).parents[3] / "docs" / "link.md"


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
