"""Hypothesis strategy for float networks as users export them, which `lutterfly quantize` is given."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from .blocks import ON_MAPS, ON_ROWS, ON_VECTORS, convolve, linear, recur, step
from .maker import BATCHES, FloatMaker, FloatNetwork
from .naming import Draw, Naming

__all__ = ["FloatNetwork", "float_networks"]


@st.composite
def float_networks(draw: Draw, *, most: int = 4) -> FloatNetwork:
    """A float network of up to ``most`` blocks, with samples.

    What shapes the network is drawn, so that a failing one shrinks; weights and samples come from a seed.
    """
    kind = draw(st.sampled_from(["map", "rows", "signal", "vector", "stream", "step", "time first"]))
    made = FloatMaker(
        np.random.default_rng(draw(st.integers(0, 2**16))),
        Naming(draw),
        # Most exporters write a symbol or one sample; time first has one, in the second axis.
        "one" if kind == "time first" else draw(st.sampled_from([*BATCHES, "symbol", "one", "symbol", "one"])),
        draw(st.sampled_from([17, 13, 14, 18, 21, 23])),
        draw(st.sampled_from(["as they are computed", "as they are computed", "backwards"])),
    )
    made.text.append(kind)
    _begin(draw, made, kind)
    for _ in range(draw(st.integers(1, most))):
        blocks = ON_VECTORS if len(made.shape) == 1 else ON_ROWS if _is_of_rows(made, kind) else ON_MAPS
        name = draw(st.sampled_from(sorted(blocks)))
        made.text.append(f"{name} of {made.shape}")
        blocks[name](draw, made)
        if name == "to rows":
            kind = "rows"
        if draw(st.integers(0, 5)) == 0:
            made.outputs.append(made.last)
    # A layer with weights at the end, that the accelerator has something to do.
    made.text.append(f"end of {made.shape}")
    if len(made.shape) == 1 or _is_of_rows(made, kind):
        linear(draw, made)
    else:
        convolve(draw, made)
    return made.finish()


def _is_of_rows(made: FloatMaker, kind: str) -> bool:
    return kind in ("rows", "time first") and len(made.shape) == 2


def _begin(draw: Draw, made: FloatMaker, kind: str) -> None:
    """The input; a stream has its last frames as a state, and a step those of a layer, as inputs and outputs."""
    channels = draw(st.integers(1, 8))
    if kind == "vector":
        made.input([draw(st.integers(2, 24))])
    elif kind == "rows":
        made.input([draw(st.integers(2, 8)), draw(st.integers(2, 16))])
    elif kind == "map":
        made.input([channels, draw(st.integers(2, 10)), draw(st.integers(2, 10))])
    elif kind == "signal":
        made.input([channels, draw(st.integers(2, 16))])
    elif kind == "step":
        step(draw, made)
    elif kind == "time first":
        made.input([draw(st.integers(2, 6)), 1, draw(st.integers(2, 8))], is_whole=True)
        recur(draw, made)
    else:
        frames, kept = draw(st.integers(1, 8)), draw(st.integers(1, 4))
        state, frame = made.input([channels, kept]), made.input([channels, frames])
        whole = made.add("Concat", frame, source=state, shape=[channels, kept + frames], axis=2)
        ends = (made.constant([value]) for value in (frames, kept + frames, 2))
        made.outputs.append(made.add("Slice", *ends))
        made.last, made.shape = whole, (channels, kept + frames)
