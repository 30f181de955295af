"""Networks with a convolution whose outputs are few, so that a window may compute several pixels."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from networks.blocks import BLOCKS, convolve
from networks.generated import FORMS, TINY, Generated, Maker


@st.composite
def few_outputs(draw: st.DrawFn) -> Generated:
    """A convolution with few outputs, in front of it perhaps a pointwise one, and behind it perhaps another block."""
    made = Maker(
        np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from(FORMS)), draw(st.booleans()), TINY
    )
    made.start((1, draw(st.integers(1, 4)), draw(st.integers(1, 10)), draw(st.integers(1, 10))))
    if draw(st.booleans()):
        convolve(draw, made, largest=1)
    convolve(draw, made, outputs=draw(st.integers(1, 4)))
    behind = draw(st.sampled_from(["", "residual", "maximum", "convolve", "split", "concatenate", "depthwise"]))
    if behind:
        BLOCKS[behind](draw, made)
    return made.finish()
