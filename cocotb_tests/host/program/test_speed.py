"""Cycles in time: at a clock that is given, or at that of a preset that has been routed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.presets import PRESETS, ROUTED_MHZ
from lutterfly.host.program import Speed

ROOT = Path(__file__).parents[3]


def test_times_and_rates() -> None:
    speed = Speed(100.0)
    assert speed.milliseconds(250_000) == 2.5
    assert speed.per_second(250_000, 1) == 400
    assert speed.text(250_000, 1) == "2.5 ms at 100 MHz, 400 inferences a second"
    assert speed.text(2_500_000, 2) == "25 ms at 100 MHz, 80.0 samples a second"
    assert speed.values(2_500_000, 2) == {"mhz": 100.0, "milliseconds": 25.0, "samples_per_second": 80.0}


def test_a_preset_has_the_clock_at_which_it_was_routed() -> None:
    for name, config in PRESETS.items():
        assert Speed.of(config) == (Speed(ROUTED_MHZ[name]) if name in ROUTED_MHZ else None)
        assert Speed.of(config, 42.5) == Speed(42.5)


def test_what_is_no_preset_has_not_been_routed() -> None:
    two = dataclasses.replace(PRESETS["ecp5-85k"], cluster=ClusterConfig(2))
    assert Speed.of(two) is None
    assert Speed.of(two, 90) == Speed(90)


def test_the_documents_give_the_same_clock() -> None:
    clock = f"{ROUTED_MHZ['ecp5-85k']} MHz"
    for path in ("README.md", "docs/results.md"):
        assert clock in (ROOT / path).read_text(), path


@pytest.mark.parametrize("mhz", [0.0, -5.0, 0.5, 3000.0, math.nan, math.inf])
def test_what_is_no_clock_is_refused(mhz: float) -> None:
    with pytest.raises(ValueError, match=r"^mhz must be between 1 and 2000, the clock in MHz, not "):
        Speed(mhz)
