"""Networks with a convolution whose outputs are few, so that a window may compute several pixels."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st

from cocotb_tests.support.networks.generated import FORMS, TINY, Generated, Maker

from .kinds import BLOCKS
from .steps import convolve


@st.composite
def few_outputs(draw: st.DrawFn, *, most: int = 4) -> Generated:
    """A convolution with few outputs, in front of it perhaps a pointwise one, and behind it perhaps another block.

    It has ``most`` outputs at most. Its geometry comes from the seed: what is drawn is small too often.
    """
    rng, limits = np.random.default_rng(draw(st.integers(0, 2**16))), dataclasses.replace(TINY, channels=most)
    made = Maker(rng, draw(st.sampled_from(FORMS)), draw(st.booleans()), limits)
    made.start((1, draw(st.integers(1, 4)), draw(st.integers(3, 10)), draw(st.integers(3, 10))))
    if draw(st.booleans()):
        convolve(draw, made, largest=1)
    made.convolution()
    behind = draw(st.sampled_from(["", "residual", "maximum", "convolve", "split", "concatenate", "depthwise"]))
    if behind:
        BLOCKS[behind](draw, made)
    return made.finish()
