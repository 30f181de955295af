"""Sensitivity of the stages: what is measured, what is proposed, and its plot. The accuracies here are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from lutterfly.golden.numerics.butterfly import Density, Pattern

pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from lutterfly.train import analyse, plot, propose

FULL, CROSS, UNIT = Density.FULL, Density.CROSS, Density.UNIT
PATTERN = Pattern.of(8, 8)
#: What making each stage lighter costs.
COSTS = (0.004, 0.001, 0.05)


class Network:
    """Counts what is measured."""

    def __init__(self) -> None:
        self.measured: list[tuple[Density, ...]] = []

    def __call__(self, densities: tuple[Density, ...]) -> float:
        self.measured.append(densities)
        order = [UNIT, CROSS, FULL]
        lost = [
            cost * max(order.index(was) - order.index(now), 0)
            for cost, was, now in zip(COSTS, PATTERN.densities, densities, strict=True)
        ]
        return 0.95 - sum(lost)


def test_every_stage_is_made_lighter_and_heavier_by_a_step():
    network = Network()
    found = analyse(PATTERN, network)
    assert [(one.change, one.densities) for one in found] == [
        ("", (FULL, CROSS, CROSS)),
        ("stage 0 lighter", (CROSS, CROSS, CROSS)),
        ("stage 1 lighter", (FULL, UNIT, CROSS)),
        ("stage 1 heavier", (FULL, FULL, CROSS)),
        ("stage 2 lighter", (FULL, CROSS, UNIT)),
        ("stage 2 heavier", (FULL, CROSS, FULL)),
    ]
    assert network.measured == [one.densities for one in found]
    assert [one.multiplications for one in found] == [32, 24, 24, 40, 24, 40]
    assert [one.accuracy for one in found] == pytest.approx([0.95, 0.946, 0.949, 0.95, 0.9, 0.95])


@pytest.mark.parametrize(
    ("tolerance", "densities"),
    [
        (0.01, (CROSS, UNIT, CROSS)),
        (0.002, (FULL, UNIT, CROSS)),
        (0.0005, (FULL, CROSS, CROSS)),
        (0.1, (CROSS, UNIT, UNIT)),
    ],
)
def test_the_proposal_is_the_lightest_that_was_measured_within_the_tolerance(
    tolerance: float, densities: tuple[Density, ...]
):
    network = Network()
    tried = propose(PATTERN, analyse(PATTERN, network), network, tolerance)
    assert tried[-1].densities == densities
    assert {one.densities for one in tried} <= set(network.measured)
    assert tried[-1].accuracy >= 0.95 - tolerance


def test_the_plot_shows_every_point(tmp_path: Path):
    network = Network()
    found = analyse(PATTERN, network)
    tried = propose(PATTERN, found, network, 0.01)
    plot([*found, *tried], tmp_path / "sensitivity.html", tried[-1])
    page = (tmp_path / "sensitivity.html").read_text()
    for text in ("stage 0 lighter", "stage 2 heavier", "stage 0 lighter too", "proposed", "multiplications of a pixel"):
        assert text in page
