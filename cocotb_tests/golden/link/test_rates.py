"""A bit's time in sixteenths of a cycle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lutterfly.golden.link import frames


@given(st.integers(25_000_000, 200_000_000), st.sampled_from([115_200, 230_400, 921_600, 1_000_000, 3_000_000]))
def test_usual_rates_are_within_four_parts_in_a_thousand(clock_hz: int, rate: int) -> None:
    assert frames.PARTS * clock_hz / frames.bit_time(clock_hz, rate) == pytest.approx(rate, rel=4e-3)


@pytest.mark.parametrize(("clock_hz", "rate"), [(25_000_000, 3_125_000), (471_852_000, 115_200)])
def test_the_limits_are_allowed_and_what_is_beyond_is_not(clock_hz: int, rate: int) -> None:
    assert frames.bit_time(clock_hz, rate) in (frames.LEAST_BIT_TIME, frames.MOST_BIT_TIME)
    beyond = rate * 1.01 if frames.bit_time(clock_hz, rate) == frames.LEAST_BIT_TIME else rate * 0.99
    with pytest.raises(ValueError, match=r"rate must be between \d+ and \d+ bits a second at a clock of \d+ Hz, not"):
        frames.bit_time(clock_hz, beyond)


def test_the_time_limit_is_a_second() -> None:
    assert frames.rate_timeout_cycles(25_000_000) == 25_000_000
