"""The pattern of a butterfly: weights, live multiplications, and what is refused."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given

from cocotb_tests.support.networks.butterflies import patterns
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern

#: Stage, and indices of the value and of the result.
Edge = tuple[int, int, int]

#: From the source: channels, and weights of the dense matrix, of the butterfly transform and of FPC.
WEIGHTS = [
    (4, 16, 16, 12),
    (16, 256, 128, 80),
    (64, 4096, 768, 448),
    (256, 65536, 4096, 2304),
    (1024, 1 << 20, 20480, 11264),
]


def paths(pattern: Pattern) -> list[tuple[int, int, list[Edge]]]:
    """Every way from an input to a kept output, past skips or not: both, and the edges that it takes."""
    #: For each stage the ways to a value that enters it.
    entering: list[list[tuple[int, int, list[Edge]]]] = [[(index, index, []) for index in range(pattern.inputs)]]
    for stage, distance in enumerate(pattern.distances):
        after = [
            (start, target, [*edges, (stage, here, target)])
            for start, here, edges in entering[-1]
            for target in (here, here ^ distance)
        ]
        entering.append(after + [path for first, last in pattern.skips if last == stage for path in entering[first]])
    return [path for path in entering[-1] if path[1] < pattern.outputs]


@pytest.mark.parametrize(("channels", "dense", "transform", "fast"), WEIGHTS)
@pytest.mark.parametrize("direction", Direction)
def test_weights_are_those_of_the_source(channels: int, dense: int, transform: int, fast: int, direction: Direction):
    pattern = Pattern.of(channels, channels, direction)
    assert pattern.weights == pattern.live_multiplications == pattern.estimated_multiplications == fast
    assert Pattern.of(channels, channels, direction, [Density.FULL] * pattern.stages).weights == transform
    assert Pattern.of(channels, channels, direction, [Density.UNIT] * pattern.stages).weights == 0
    assert channels**2 == dense


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 4), (16, 16), (5, 3), (3, 7), (64, 17)])
@pytest.mark.parametrize("direction", Direction)
def test_exactly_one_path_leads_from_each_input_to_each_output(inputs: int, outputs: int, direction: Direction):
    ends = [(start, end) for start, end, _ in paths(Pattern.of(inputs, outputs, direction))]
    assert sorted(ends) == [(first, last) for first in range(inputs) for last in range(outputs)]


@given(patterns(most=12))
def test_what_is_live_lies_on_a_path(pattern: Pattern):
    live = {edge for _, _, edges in paths(pattern) for edge in edges}
    counted = [
        (stage, source, target)
        for stage, source, target in live
        if (pattern.densities[stage].trains_own if source == target else pattern.densities[stage].trains_cross)
    ]
    assert pattern.live_multiplications == len(counted)
    for stage, (own, cross) in enumerate(pattern.live_weights()):
        assert {i for i, is_live in enumerate(own) if is_live} == {t for s, f, t in counted if s == stage and f == t}
        assert {i for i, is_live in enumerate(cross) if is_live} == {t for s, f, t in counted if s == stage and f != t}


@given(patterns(most=64))
def test_no_more_is_live_than_there_are_weights(pattern: Pattern):
    assert pattern.live_multiplications <= pattern.weights


def test_the_estimate_of_the_source_is_near_what_is_live():
    """Five of eight inputs and three of eight outputs: counted by hand on the drawing of the stages."""
    pattern = Pattern.of(5, 3)
    assert pattern.weights == 8 * 4
    assert pattern.estimated_multiplications == Fraction(32 * 15, 64)
    # The first stage reads inputs 0 to 4, and everything after it is needed. Outputs 0 to 2 read 0 to 2 and 4 to 6 of
    # the last stage: the second one crosses into 0, 1, 2 and 6, but into 4 and 5 come null 6 and 7.
    assert [(sum(own), sum(cross)) for own, cross in pattern.live_weights()] == [(5, 5), (0, 4), (0, 3)]


def test_directions_are_known_by_their_distances():
    assert Pattern.of(8, 8).distances == (1, 2, 4)
    assert Pattern.of(8, 8, "top-down").distances == (4, 2, 1)
    assert Pattern.of(8, 8, "top-down").densities == (Density.CROSS, Density.CROSS, Density.FULL)
    assert Pattern.of(8, 8, "top-down").direction is Direction.TOP_DOWN
    assert Pattern.of(2, 2, "top-down").direction is Direction.BOTTOM_UP
    assert Pattern(8, 8, (2, 1, 4), (Density.FULL,) * 3).direction is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inputs": 0}, "inputs and outputs must be at least 1, and one of them at least 2, not 0 and 8"),
        ({"inputs": 1, "outputs": 1}, "inputs and outputs must be at least 1, and one of them at least 2, not 1 and 1"),
        ({"direction": "up"}, "direction must be 'bottom-up' or 'top-down', not 'up'"),
        ({"densities": ["full"] * 2}, "densities must be 3, one for each stage of 8 values, not 2"),
        ({"densities": ["full"] * 4}, "densities must be 3, one for each stage of 8 values, not 4"),
        ({"densities": ["full", "half", "unit"]}, "densities must be 'full' or 'cross' or 'unit', not 'half'"),
        ({"skips": [(1, 0)]}, "skips must be (i, j) with 0 <= i <= j <= 2, not (1, 0)"),
        ({"skips": [(0, 3)]}, "skips must be (i, j) with 0 <= i <= j <= 2, not (0, 3)"),
        ({"skips": [(0, 2), (0, 2)]}, "skips must differ from one another, not be [(0, 2), (0, 2)]"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Pattern.of(**{"inputs": 8, "outputs": 8} | values)


def test_distances_that_miss_a_path_are_refused():
    message = r"^distances must be \[1, 2, 4\] in any order, each once, not \[1, 2, 2\]$"
    with pytest.raises(ValueError, match=message):
        Pattern(8, 8, (1, 2, 2), (Density.FULL,) * 3)
