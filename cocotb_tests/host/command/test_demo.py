"""The demo: what it says of some digits, and how it shows them."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.examples import digits
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.command import demo


@pytest.mark.regress
@needs_reference
def test_what_it_says_is_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = digits.images()[:6], digits.labels()[:6]
    monkeypatch.setattr(digits, "images", lambda: images)
    monkeypatch.setattr(digits, "labels", lambda: labels)
    config = PRESETS["tiny"]
    found = demo.run(config)
    session = InferenceSession(digits.model_path("qdq"), config)
    logits = session.run(None, {"pixels": images})[0]
    np.testing.assert_array_equal(found.predictions, logits.argmax(axis=1))
    np.testing.assert_array_equal(found.reference_predictions, found.predictions)
    assert (found.bytes, found.mismatched_bytes) == (logits.nbytes, 0)
    # The first image's program is not resident yet.
    cycles = [counters["cycles"] for counters in session.counters]
    assert found.cycles == cycles[-1] < cycles[0]
    assert found.predicted_cycles == session.program.predicted_cycles
    assert found.utilisation == found.macs / (cycles[-1] * config.multipliers)
    assert found.is_right


def test_images_side_by_side_in_shades() -> None:
    images = np.array([[[[0, 0.1], [0.55, 1]]], [[[0.99, 0.05], [1, 0]]]], np.float32)
    assert demo.picture(images) == "  ..   @@  \n++@@   @@  "
