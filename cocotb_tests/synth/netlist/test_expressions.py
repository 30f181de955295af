"""Look-up tables as expressions, with every input at every level."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lutterfly.synth.netlist.translate import HIGH, LOW, halves, look_up

NAMES = ("a", "b", "c", "d")


def value_of(expression: str, levels: dict[str, int]) -> int:
    """The lowest bit of Verilog that Python understands once numbers and concatenations are written its way."""
    for name, number in (("8'h", "0x"), ("16'h", "0x"), (HIGH, "1"), (LOW, "0")):
        expression = expression.replace(name, number) if "'" in name else expression
    if "{" in expression:
        table, _, inputs = expression.partition(" >> ")
        bits = [levels[name] for name in inputs.strip("{}").split(", ")]
        expression = f"{table} >> {int(''.join(map(str, bits)), 2)}"
    return eval(expression, {}, levels) & 1


@pytest.mark.parametrize("count", range(5))
def test_every_entry_of_a_table(count: int) -> None:
    entries = 1 << count
    tables = range(1 << entries) if count < 4 else np.random.default_rng(1).integers(0, 1 << 16, 200).tolist()
    for table in (*tables, (1 << entries) - 1, 0):
        expression = look_up(table, NAMES[:count])
        for number in range(entries):
            levels = {name: number >> index & 1 for index, name in enumerate(NAMES[:count])}
            assert value_of(expression, levels) == table >> number & 1, (table, expression, levels)


@pytest.mark.parametrize("table", [0xCA53, 0x8000, 0x6996, 0xFF00])
def test_levels_are_taken_in(table: int) -> None:
    for inputs in itertools.product((LOW, HIGH, "net"), repeat=4):
        names = [f"{NAMES[index]}" if one == "net" else one for index, one in enumerate(inputs)]
        expression = look_up(table, names)
        free = [name for name in names if name in NAMES]
        for levels in itertools.product((0, 1), repeat=len(free)):
            known = dict(zip(free, levels, strict=True))
            number = sum(
                (known[name] if name in known else int(name == HIGH)) << index for index, name in enumerate(names)
            )
            assert value_of(expression, known) == table >> number & 1, (names, expression)


def test_an_input_that_does_not_matter_is_left_out() -> None:
    assert look_up(0b1010_1010_1010_1010, NAMES) == "a"
    assert look_up(0xFFFF, NAMES) == HIGH
    assert halves(0b1000, 1, 2) == (0b00, 0b10)
