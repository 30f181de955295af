"""Butterflies with random weights, for tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from lutterfly.golden.butterfly import Density, Pattern, count_stages
from lutterfly.golden.fpc import UNIT_WEIGHT, Finish, Stages


def random_stages(pattern: Pattern, seed: int, *, extreme: bool = False) -> Stages:
    """Weights around the ones that a network has, or the least and the greatest there are."""
    rng = np.random.default_rng(seed)

    def weights(trained: bool) -> np.ndarray:
        if not trained:
            return np.full(pattern.width, UNIT_WEIGHT, np.int8)
        drawn = rng.choice([-128, 127], pattern.width) if extreme else rng.integers(-80, 81, pattern.width)
        return drawn.astype(np.int8)

    return Stages(
        pattern,
        tuple(weights(density.trains_own) for density in pattern.densities),
        tuple(weights(density.trains_cross) for density in pattern.densities),
        tuple(rng.integers(0, 2, pattern.stages).tolist()),
        7 if extreme else int(rng.integers(0, 8)),
    )


def random_finish(outputs: int, seed: int, *, shift: int | None = None) -> Finish:
    """Any bias; scales that use the whole range of codes, or ``2**-shift``."""
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.uniform(-6, -2, outputs)) if shift is None else np.full(outputs, 2.0**-shift)
    low, high = sorted(rng.choice([-128, 127, *rng.integers(-128, 128, 3)], 2, replace=False).tolist())
    bias = rng.integers(-(1 << 15), 1 << 15, outputs) if seed % 2 else rng.integers(-300, 300, outputs)
    return Finish(bias, scale.astype(np.float32), int(rng.integers(-128, 128)), low, high)


@st.composite
def patterns(draw: st.DrawFn, most: int = 64) -> Pattern:
    """Any channels, densities, order of distances and skips."""
    inputs, outputs = draw(st.integers(1, most)), draw(st.integers(1, most))
    inputs = max(inputs, 2) if outputs == 1 else inputs
    stages = count_stages(inputs, outputs)
    distances = draw(st.permutations([1 << stage for stage in range(stages)]))
    densities = draw(st.lists(st.sampled_from(list(Density)), min_size=stages, max_size=stages))
    every = [(first, last) for last in range(stages) for first in range(last + 1)]
    skips = draw(st.lists(st.sampled_from(every), max_size=3, unique=True))
    return Pattern(inputs, outputs, tuple(distances), tuple(densities), tuple(skips))
