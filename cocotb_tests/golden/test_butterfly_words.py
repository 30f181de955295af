"""Weights of a butterfly in the words that hardware reads: each where its lane multiplies it, and found again."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.networks.butterflies import random_stages
from lutterfly.golden.numerics.butterfly import Pattern
from lutterfly.golden.numerics.fpc import place, unplace


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
