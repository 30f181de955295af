"""Fast pointwise convolution in integers, against the source's formulas, plain loops and float64."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cocotb_tests.support.networks.butterflies import patterns, random_epilogue, random_stages
from lutterfly.golden.numerics.butterfly import Direction, Pattern
from lutterfly.golden.numerics.fpc import (
    FpcEpilogue,
    Stages,
    dense_matrix,
    enter,
    fast_pointwise,
    place,
    requantise_values,
    run_stages,
    shift_values,
    unplace,
)
from lutterfly.golden.numerics.fpc_float import fast_pointwise_float

#: Names of the weights in the source's figures, by stage and index of the result: own and cross.
BOTTOM_UP_NAMES = ((["d00", "d01", "d02", "d03"], ["g00", "f00", "g01", "f01"]), (None, ["g10", "g11", "f10", "f11"]))
TOP_DOWN_NAMES = ((None, ["g00", "g01", "f00", "f01"]), (["d10", "d11", "d12", "d13"], ["g10", "f10", "g11", "f11"]))
#: The source's formulas for four channels, as the weights that each output multiplies each input with.
BOTTOM_UP = """
    d00      g00      d02*g10  g01*g10
    f00      d01      f01*g11  d03*g11
    d00*f10  g00*f10  d02      g01
    f00*f11  d01*f11  f01      d03
"""
TOP_DOWN = """
    d10      g10      g00*d10  g01*g10
    f10      d11      g00*f10  g01*d11
    f00*d12  f01*g11  d12      g11
    f00*f11  f01*d13  f11      d13
"""


@pytest.mark.parametrize(
    ("direction", "names", "formulas"),
    [(Direction.BOTTOM_UP, BOTTOM_UP_NAMES, BOTTOM_UP), (Direction.TOP_DOWN, TOP_DOWN_NAMES, TOP_DOWN)],
)
def test_four_channels_are_the_formulas_of_the_source(direction: Direction, names: tuple, formulas: str):
    stages = random_stages(Pattern.of(4, 4, direction), 1)
    stages = Stages(stages.pattern, stages.own, stages.cross, (0, 0))
    values = {
        name: Fraction(int(weight), 64)
        for stage, (own, cross) in enumerate(names)
        for known, weights in ((own, stages.own[stage]), (cross, stages.cross[stage]))
        for name, weight in zip(known or (), weights, strict=bool(known))
    }
    wanted = [[eval(term, {}, values) for term in line.split()] for line in formulas.strip().splitlines()]
    assert dense_matrix(stages).tolist() == wanted


@pytest.mark.regress
@given(patterns(most=20), st.integers(0, 1 << 20))
def test_the_dense_matrix_is_what_the_stages_do_to_each_input(pattern: Pattern, seed: int):
    stages = random_stages(pattern, seed)
    matrix = dense_matrix(stages)
    for source in range(pattern.inputs):
        entering = [[Fraction(int(index == source)) for index in range(pattern.width)]]
        for stage in range(pattern.stages):
            after = [value / 2 ** stages.growth_shifts[stage] for value in plain_stage(stages, stage, entering[-1])]
            for first, last in pattern.skips:
                if last == stage:
                    after = [one + other for one, other in zip(after, entering[first], strict=True)]
            entering.append(after)
        assert matrix[:, source].tolist() == entering[-1][: pattern.outputs]


def plain_stage(stages: Stages, stage: int, values: list[Fraction]) -> list[Fraction]:
    """The products of a stage and their sums, pair by pair."""
    distance = stages.pattern.distances[stage]
    own, cross = ([Fraction(int(weight), 64) for weight in w[stage]] for w in (stages.own, stages.cross))
    result = [Fraction(0)] * len(values)
    for low in range(len(values)):
        if low & distance:
            continue
        high = low + distance
        result[low] = own[low] * values[low] + cross[low] * values[high]
        result[high] = cross[high] * values[low] + own[high] * values[high]
    return result


def plain(codes: list[int], zero_point: int, stages: Stages, epilogue: FpcEpilogue) -> list[int]:
    """A pixel, as the documentation says it, with Python's exact numbers; its ``round`` takes halves to even."""
    pattern = stages.pattern
    values = [Fraction((code - zero_point) * 2**stages.input_shift) for code in codes]
    entering = [values + [Fraction(0)] * (pattern.width - len(values))]
    for stage in range(pattern.stages):
        sums = [Fraction(value, 2 ** stages.growth_shifts[stage]) for value in plain_stage(stages, stage, entering[-1])]
        skipped = [entering[first] for first, last in pattern.skips if last == stage]
        totals = [round(total) + sum(other[index] for other in skipped) for index, total in enumerate(sums)]
        entering.append([Fraction(min(max(total, -32768), 32767)) for total in totals])
    result = []
    for value, bias, scale in zip(entering[-1], epilogue.bias.tolist(), epilogue.scale, strict=False):
        product = np.float32(float(value) + bias) * scale
        result.append(min(max(round(float(product)) + epilogue.zero_point, epilogue.low), epilogue.high))
    return result


@pytest.mark.regress
@given(patterns(), st.integers(0, 1 << 20), st.booleans())
def test_every_code_is_that_of_plain_loops(pattern: Pattern, seed: int, extreme: bool):
    rng = np.random.default_rng(seed)
    stages, epilogue = random_stages(pattern, seed, extreme=extreme), random_epilogue(pattern.outputs, seed)
    codes = rng.integers(-128, 128, (2, 3, pattern.inputs)).astype(np.int8)
    zero_point = int(rng.choice([-128, 127, 0, 5]))
    result = fast_pointwise(codes, zero_point, stages, epilogue)
    assert result.dtype == np.int8
    wanted = [[plain(pixel, zero_point, stages, epilogue) for pixel in row] for row in codes.tolist()]
    assert result.tolist() == wanted


@pytest.mark.parametrize("direction", Direction)
def test_extremes_saturate_and_do_not_wrap(direction: Direction):
    pattern = Pattern.of(16, 16, direction, ["full"] * 4)
    weights = (np.full(16, -128, np.int8),) * 4
    stages = Stages(pattern, weights, weights, (0,) * 4, 7)
    values = enter(np.full((2, 16), -128, np.int8), 127, stages)
    assert (values == -255 * 128).all()
    # Twice -2 times the least value is four times too great; then every stage changes the sign.
    results = [run_stages(values, only_first(stages, count))[0, 0] for count in (1, 2, 3, 4)]
    assert results == [32767, -32768, 32767, -32768]


def only_first(stages: Stages, count: int) -> Stages:
    """The first stages alone: the others pass values on."""
    kept = range(stages.pattern.stages)
    weights = [
        tuple(array[at] if at < count else np.full(16, value, np.int8) for at in kept)
        for array, value in ((stages.own, 64), (stages.cross, 0))
    ]
    return Stages(stages.pattern, *weights, stages.growth_shifts, stages.input_shift)


def test_halves_go_to_even_and_the_sum_is_rounded_once():
    pattern = Pattern.of(2, 2)
    stages = Stages(pattern, (np.array([32, 32]),), (np.array([32, 0]),), (0,))
    values = np.array([[1, 1], [1, 2], [3, 0], [5, 0], [-1, 0], [-3, 0]], np.int16)
    # 1/2 + 1/2 is 1, which two roundings to even would make 0.
    assert run_stages(values, stages)[:, 0].tolist() == [1, 2, 2, 2, 0, -2]


def test_a_skip_joins_the_rounded_sum_and_saturates_with_it():
    """A sum beyond 16 bits comes back within them by what is skipped; saturating first would lose it."""
    pattern = Pattern.of(2, 2, densities=["full"], skips=[(0, 0)])
    stages = Stages(pattern, (np.array([-128, 0]),), (np.array([0, 0]),), (0,))
    assert run_stages(np.array([[-20000, 7]], np.int16), stages).tolist() == [[20000, 7]]


def test_null_channels_stay_null_whatever_their_weights():
    stages = random_stages(Pattern.of(5, 8, densities=["full"] * 3), 3, extreme=True)
    values = enter(np.full(5, 100, np.int8), -100, stages)
    assert values[5:].tolist() == [0, 0, 0]
    other = tuple(np.where(np.arange(8) == 7, 1, array) for array in stages.own)
    changed = Stages(stages.pattern, (other[0], *stages.own[1:]), stages.cross, stages.growth_shifts, 7)
    np.testing.assert_array_equal(run_stages(values, stages), run_stages(values, changed))


@pytest.mark.parametrize("shift", range(8))
def test_a_shift_gives_what_requantisation_gives(shift: int):
    """On every value there is, with the biases that go furthest."""
    values = np.arange(-(1 << 15), 1 << 15).astype(np.int16)[:, np.newaxis].repeat(5, axis=1)
    for zero_point, low, high in ((0, -128, 127), (-128, -128, 127), (127, -7, 127), (3, 3, 100)):
        epilogue = FpcEpilogue(
            np.array([-32768, 32767, 0, 1, -3]), np.full(5, 2.0**-shift, np.float32), zero_point, low, high
        )
        assert epilogue.shift == shift
        np.testing.assert_array_equal(shift_values(values, epilogue), requantise_values(values, epilogue))


@pytest.mark.parametrize("scale", [[0.25, 0.5], [0.3, 0.3], [2.0, 2.0], [2.0**-8, 2.0**-8]])
def test_other_scales_have_no_shift(scale: list[float]):
    epilogue = FpcEpilogue(np.zeros(2, np.int16), np.array(scale, np.float32), 0)
    assert epilogue.shift is None
    with pytest.raises(ValueError, match=r"^scale must be 2\*\*-k for all channels, k from 0 to 7, not from"):
        shift_values(np.zeros(2, np.int16), epilogue)


def test_float32_computes_the_same():
    """Every sum of extreme products is below 2**24, so that a network in float32 has these values."""
    for value, other, own, cross in itertools.product([-32768, 32767], [-32768, 32767], [-128, 127], [-128, 127]):
        total = np.float32(own) * np.float32(value) + np.float32(cross) * np.float32(other)
        assert int(total) == own * value + cross * other


@given(patterns(), st.integers(0, 1 << 20), st.booleans(), st.sampled_from([1, 7, 700]))
def test_every_code_in_float32_is_that_in_integers(pattern: Pattern, seed: int, extreme: bool, pixels: int):
    """Of one pixel, of some, and of more than are computed at a time."""
    rng = np.random.default_rng(seed)
    stages, epilogue = random_stages(pattern, seed, extreme=extreme), random_epilogue(pattern.outputs, seed)
    codes = rng.integers(-128, 128, (1, pixels, pattern.inputs)).astype(np.int8)
    zero_point = int(rng.choice([-128, 127, 0, 5]))
    wanted = fast_pointwise(codes, zero_point, stages, epilogue)
    np.testing.assert_array_equal(fast_pointwise_float(codes, zero_point, stages, epilogue), wanted)


@pytest.mark.parametrize("growth", [0, 1])
@pytest.mark.parametrize("skips", [[], [(0, 0)], [(0, 3), (1, 3), (2, 3), (3, 3)]])
def test_extremes_in_float32_saturate_as_integers(skips: list[tuple[int, int]], growth: int):
    """Products of the greatest factors, and as many skips at a stage as there are, of both signs."""
    pattern = Pattern.of(16, 16, "bottom-up", ["full"] * 4, skips)
    epilogue = FpcEpilogue(np.array([-32768, 32767] * 8), np.full(16, 2.0**-9, np.float32), 1)
    for own, cross in itertools.product([-128, -127, 127], repeat=2):
        weights = [(np.full(16, weight, np.int8),) * 4 for weight in (own, cross)]
        stages = Stages(pattern, *weights, (growth,) * 4, 7)
        codes = np.random.default_rng(0).choice(np.array([-128, 127], np.int8), (50, 16))
        wanted = fast_pointwise(codes, 127, stages, epilogue)
        np.testing.assert_array_equal(fast_pointwise_float(codes, 127, stages, epilogue), wanted)


def made(**changed: object) -> Callable[[], Stages]:
    pattern = Pattern.of(3, 4, densities=["cross", "full"])
    ones = (np.full(4, 64, np.int8),) * 2
    values = {"pattern": pattern, "own": ones, "cross": ones, "growth_shifts": (0, 0), "input_shift": 0} | changed
    return lambda: Stages(**values)


def weights(*arrays: list) -> tuple[np.ndarray, ...]:
    return tuple(np.array(array) for array in arrays)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (made(own=weights([64] * 4)), ValueError, "own must be 2, one for each stage, not 1"),
        (made(cross=weights([64] * 4, [64] * 3)), ValueError, "cross[1] must have the shape (4,), not (3,)"),
        (made(cross=weights([1.5] * 4, [64] * 4)), TypeError, "cross[0] must be integers, not float64"),
        (
            made(own=weights([64] * 4, [1, 2, 128, 3])),
            ValueError,
            "own[1] must be between -128 and 127, not 128",
        ),
        (
            made(own=weights([64, 64, 63, 64], [64] * 4)),
            ValueError,
            "own[0] must be 64 in a stage of density cross, not 63",
        ),
        (made(growth_shifts=(0,)), ValueError, "growth_shifts must be 2, one for each stage, not 1"),
        (made(growth_shifts=(0, 2)), ValueError, "growth_shifts[1] must be 0 or 1, not 2"),
        (made(input_shift=8), ValueError, "input_shift must be between 0 and 7, not 8"),
        (
            lambda: FpcEpilogue(np.array([32768]), np.ones(1, np.float32), 0),
            ValueError,
            "bias must be between -32768 and 32767, not 32768",
        ),
        (
            lambda: FpcEpilogue(np.zeros(2, np.int16), np.ones(3, np.float32), 0),
            ValueError,
            "bias must have the shape of multiplier (3,), not (2,)",
        ),
        (
            lambda: FpcEpilogue(np.zeros(1, np.int16), np.ones(1), 0),
            TypeError,
            "multiplier must be float32, not float64",
        ),
        (
            lambda: fast_pointwise(np.zeros(4, np.int8), 0, made()(), random_epilogue(4, 0)),
            ValueError,
            "codes must have 3 channels, not the shape (4,)",
        ),
        (
            lambda: fast_pointwise(np.zeros(3, np.int8), 0, made()(), random_epilogue(3, 0)),
            ValueError,
            "bias must be of 4 outputs, not 3",
        ),
        (
            lambda: enter(np.zeros(3, np.int16), 0, made()()),
            TypeError,
            "codes must be int8, not int16",
        ),
        (
            lambda: enter(np.zeros(3, np.int8), 128, made()()),
            ValueError,
            "zero_point must be between -128 and 127, not 128",
        ),
        (
            lambda: run_stages(np.zeros(3, np.int16), made()()),
            ValueError,
            "values must have 4 channels, not the shape (3,)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], object], kind: type[Exception], message: str):
    with pytest.raises(kind, match=f"^{re.escape(message)}$"):
        make()


# Weights of a butterfly in the words that hardware reads: each where its lane multiplies it, and found again.


def test_a_partner_in_the_word_is_multiplied_in_its_own_lane() -> None:
    stages = random_stages(Pattern.of(8, 8, densities=["full", "cross", "cross"]), 1)
    own, cross = stages.own, stages.cross
    words = place(stages, stages.pattern, 4).words
    assert words.shape == (2, 4, 4)
    first = [own[0][:4], cross[0][[1, 0, 3, 2]], cross[1][[2, 3, 0, 1]], cross[2][:4]]
    second = [own[0][4:], cross[0][[5, 4, 7, 6]], cross[1][[6, 7, 4, 5]], cross[2][4:]]
    np.testing.assert_array_equal(words, [first, second])


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("direction", ["bottom-up", "top-down"])
def test_weights_are_found_again_on_hardware_for_more_channels(direction: str, lanes: int) -> None:
    stages = random_stages(Pattern.of(8, 5, direction), 2)
    hardware = Pattern.of(32, 32, direction)
    own, cross = unplace(place(stages, hardware, lanes).words, hardware, 3)
    np.testing.assert_array_equal(own, stages.own)
    np.testing.assert_array_equal(cross, stages.cross)
