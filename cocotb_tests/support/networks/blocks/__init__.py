"""Hypothesis strategies for quantised ONNX networks: chains of blocks, of every kind that the accelerator runs.

What shapes a network is drawn, so that a failing one shrinks; weights, scales and zero points come from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from cocotb_tests.support.networks.generated import FORMS, TINY, Generated, Limits, Maker

from .kinds import BLOCKS
from .steps import Draw, convolve, join, pool, restore, state

__all__ = ["BLOCKS", "convolve", "join", "networks", "pool", "restore", "state"]


@st.composite
def networks(draw: Draw, *, limits: Limits = TINY, kinds: Sequence[str] | None = None, most: int = 4) -> Generated:
    """A network of up to ``most`` blocks of some kinds, by default all.

    Parameters
    ----------
    limits : Limits
        Channels, sides and bytes of every feature map stay within them.
    kinds : sequence of str
        Keys of :data:`BLOCKS`.
    most : int
    """
    made = Maker(
        np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from(FORMS)), draw(st.booleans()), limits
    )
    spatial = draw(st.sampled_from([2, 1]))
    sides = [draw(st.integers(1, limits.side)) for _ in range(spatial)]
    room = max(1, limits.map_bytes // (4 * math.prod(sides)))
    made.start((1, draw(st.integers(1, min(limits.channels, 12, room))), *sides))
    for kind in draw(st.lists(st.sampled_from(sorted(kinds or BLOCKS)), min_size=1, max_size=most)):
        if len(made.shape) > 2:
            made.text.append(kind)
            BLOCKS[kind](draw, made)
    if not made.nodes:
        convolve(draw, made)
    return made.finish()
