"""Copies of single bytes leave a LOAD the pauses between their commands alone: the clock has these where they are."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import measure
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.presets import PRESETS


@pytest.mark.demo_core
def test_an_input_arrives_in_the_pauses_between_copies() -> None:
    """The last chunk of the second input goes in a pause in front of a command whose results do not wait."""
    maker = GraphMaker((1, 1, 405))
    places = np.arange(405)
    first = maker.arranged(places.reshape(3, 3, 5, 9).transpose(2, 3, 1, 0).reshape(5, 9, 9), "x")
    second = maker.arranged(places.reshape(9, 5, 9).transpose(1, 2, 0), maker.input("y", (1, 1, 405)))
    measured = measure(maker.finish(maker.add(first, second)), PRESETS["ecp5-85k"])
    assert measured.counters["cycles"] == measured.program.predicted_cycles
    # From a layer to the next one; when the first one begins is told otherwise.
    assert measured.layer_cycles[1:] == [layer.cycles for layer in measured.program.layers[1:]]
