"""How a network is spread over the cores of an accelerator."""

from __future__ import annotations

import enum

from ...golden.program.program import Program


class SpreadBy(enum.StrEnum):
    """What cores have a part of each."""

    #: Of the samples: every core computes the whole network, for its own.
    SAMPLE = "sample"
    #: Of every layer: all cores compute one sample.
    LAYER = "layer"


def spread_of(program: Program) -> SpreadBy:
    """How a program for several cores is spread."""
    return SpreadBy.SAMPLE if program.shares > 1 else SpreadBy.LAYER
