"""What is said of a table: errors, saturation, block RAMs."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from lutterfly.golden.transfer.schemes import parse
from lutterfly.host.transfer.table import TableFacts, tabulate_chain


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
    "target",
    [
        *("q0.7", "q3.4:symmetric", "uq4.4", "q3.12", "uq0.16", "int8:scale=0.05,zero_point=-128", "uint8:scale=0.3"),
        *("int8:scale=0.1,zero_point=127", "uint16:scale=0.0007,zero_point=300", "int16:scale=0.0003,zero_point=-9"),
    ],
)
def test_what_saturates_lies_more_than_half_a_step_beyond(target: str) -> None:
    """Numbers around either end, among them the nearest to where saturation begins, counted in exact fractions."""
    after = parse(target)
    scale, half = Fraction(after.scale), Fraction(1, 2)
    ends = [scale * (code - after.zero_point) for code in (after.least - half, after.greatest + half)]
    near = [np.float32(end + scale * part) for end in ends for part in (-40, -1, -half, 0, half, 1, 40)]
    near += [np.nextafter(number, np.float32(way)) for number in near for way in (-np.inf, np.inf)]
    results = np.resize(near, 256)
    beyond = [not ends[0] <= Fraction(float(result)) <= ends[1] for result in results]
    assert 50 < sum(beyond) < 206
    assert facts("q3.4", lambda _: results, target).saturated == sum(beyond)


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
