"""Depths: how much a window may find in front of it."""

from __future__ import annotations

import pytest

from cocotb_tests.support.networks.mixed.configurations import CONFIGS as MIXED
from lutterfly.golden.config import Config
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.timing.latencies import backlog_limit, result_windows, window_results

CONFIGS = {**PRESETS, **MIXED}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_window_that_passes_has_room_for_all_its_results(config: Config) -> None:
    """Those before it take a cycle each at least: so many of them may wait at most."""
    for code in config.engines:
        assert 0 < backlog_limit(config, code) <= result_windows(config) - window_results(config, code)
