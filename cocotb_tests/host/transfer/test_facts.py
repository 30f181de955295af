"""What is said of a table: errors, saturation, block RAMs."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.golden.scheme_names import parse
from lutterfly.host.transfer.facts import TableFacts, tabulate_chain


def facts(source: str, function, target: str) -> TableFacts:
    return tabulate_chain("f", function, parse(source), parse(target))


def test_the_error_is_that_of_the_codes() -> None:
    values = facts("q3.4", lambda x: x * np.float32(0.3), "q3.4").values()
    errors = [abs(round(code * 0.3) / 16 - code * 0.3 / 16) for code in range(-128, 128)]
    assert values["greatest_error"] == pytest.approx(max(errors), abs=1e-6)
    assert values["greatest_error_steps"] == values["greatest_error"] * 16 <= 0.5
    assert values["saturated"] == 0


def test_saturation_is_counted() -> None:
    values = facts("q3.4", lambda x: x * np.float32(2), "q3.4").values()
    assert (values["saturated"], values["greatest_error"], values["greatest_error_at"]) == (128, 8, -8)
    # A result that lies half a step beyond is rounded, and does not count.
    assert facts("q3.4", lambda x: x + np.float32(1 / 32), "q3.4").saturated == 0


@pytest.mark.parametrize(
    ("source", "function", "target", "stored", "blocks"),
    [
        ("q3.4", np.tanh, "q0.7", 128, (0, 0)),
        ("q3.4", np.exp, "uq12.4", 256, (0, 0)),
        ("q3.12", np.tanh, "q0.7", 1 << 15, (16, 8)),
        ("q3.12", np.exp, "uq4.4", 1 << 16, (32, 16)),
        ("q3.12", np.tanh, "q0.15", 1 << 15, (32, 16)),
        ("q3.12", np.exp, "uq12.4", 1 << 16, (64, 32)),
    ],
)
def test_memory(source: str, function, target: str, stored: int, blocks: tuple[int, int]) -> None:
    found = facts(source, function, target)
    values = found.values()
    assert (values["stored_entries"], values["is_half"]) == (stored, stored < len(found.table))
    assert values["block_rams"] == dict(zip(("ecp5", "xilinx"), blocks, strict=True))
    assert values["is_block_ram"] == any(blocks)


def test_the_unused_code_of_a_symmetric_source_has_the_entry_of_its_neighbour() -> None:
    found = facts("q3.4:symmetric", np.exp, "uq4.4")
    assert found.rom.table.tolist() == [found.table[0], *found.table]
    assert len(found.table) == 255
