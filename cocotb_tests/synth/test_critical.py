"""Delays of paths through nets, before placement: what is on a long path, and what ends one."""

from __future__ import annotations

from typing import Any

import pytest

from lutterfly.synth.floorplan import path_delays

WIRE, REGISTER, LUT = 0.9, 0.6, 0.24


def cell(kind: str, inputs: dict[str, list[Any]], outputs: dict[str, list[int]], **parameters: str) -> dict[str, Any]:
    directions = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {
        "type": kind,
        "parameters": parameters,
        "port_directions": directions,
        "connections": {**inputs, **outputs},
    }


def register(source: int, target: int, **more: list[Any]) -> dict[str, Any]:
    return cell("TRELLIS_FF", {"DI": [source], "CLK": [1], **more}, {"Q": [target]})


def lut(*sources: int | str, target: int) -> dict[str, Any]:
    return cell("LUT4", {port: [bit] for port, bit in zip("ABCD", sources, strict=False)}, {"Z": [target]})


def test_each_level_of_logic_counts() -> None:
    cells = {
        "from": register(9, 2),
        "first": lut(2, 3, "0", target=4),
        "second": lut(4, target=5),
        "to": register(5, 6),
        "beside": register(8, 3),
        "short": register(6, 7),
    }
    delays = path_delays(cells)
    longest = REGISTER + 3 * WIRE + 2 * LUT
    # All of one path have its delay; the clock is on none.
    assert [delays[net] for net in (2, 3, 4, 5)] == pytest.approx([longest] * 4)
    assert delays[6] == pytest.approx(REGISTER + WIRE)
    assert 1 not in delays


def test_a_net_has_the_longest_of_its_paths() -> None:
    cells = {"from": register(9, 2), "deep": lut(2, target=3), "to": register(3, 4), "straight": register(2, 5)}
    assert path_delays(cells)[2] == pytest.approx(REGISTER + 2 * WIRE + LUT)


def test_enables_and_resets_end_earlier() -> None:
    cells = {"from": register(9, 2), "to": register(8, 3, LSR=[2])}
    assert path_delays(cells)[2] == pytest.approx(REGISTER + WIRE + 0.4)


def test_carries_have_wires_of_their_own() -> None:
    def carry(a: int, carry_in: int | str, target: int, carry_out: int) -> dict[str, Any]:
        inputs = {"A0": [a], "B0": ["0"], "A1": [a], "B1": ["0"], "CIN": [carry_in]}
        return cell("CCU2C", inputs, {"S0": [target], "S1": [target + 1], "COUT": [carry_out]})

    cells = {
        "from": register(9, 2),
        "low": carry(2, "0", 10, 12),
        "high": carry(3, 12, 20, 22),
        "to": register(20, 30),
        "other": register(8, 3),
    }
    delays = path_delays(cells)
    assert delays[12] == pytest.approx(REGISTER + WIRE + 0.45 + 0.44 + WIRE)
    # The second half's operands do not reach the first half's sum.
    assert delays[10] == pytest.approx(REGISTER + 2 * WIRE + 0.45)


@pytest.mark.parametrize(
    ("kind", "slow", "fast", "delay"),
    [
        ("DP16KD", {"REGMODE_B": "NOREG"}, {"REGMODE_B": "OUTREG"}, 5.7),
        ("MULT18X18D", {}, {"REG_OUTPUT_CLK": "CLK0"}, 3.5),
    ],
)
def test_blocks_without_a_register_begin_late(kind: str, slow: dict, fast: dict, delay: float) -> None:
    for parameters, start in ((slow, delay), (fast, REGISTER)):
        cells = {"block": cell(kind, {}, {"D": [2]}, **parameters), "to": register(2, 3)}
        assert path_delays(cells)[2] == pytest.approx(start + WIRE)


def test_loops_of_logic_have_no_delay() -> None:
    cells = {"one": lut(2, target=3), "other": lut(3, target=2), "from": register(9, 4), "to": register(4, 5)}
    assert path_delays(cells) == {4: pytest.approx(REGISTER + WIRE), 5: pytest.approx(REGISTER + WIRE)}
