"""Multipliers that give the wanted codes, where the real one does not."""

from __future__ import annotations

import numpy as np
import pytest

from lutterfly.host.frontend.qonnx.fit import _requantised, find_multiplier


@pytest.mark.parametrize("slope", [0.8, 1.2])
@pytest.mark.parametrize("limits", [(0, -3, 5), (2, -128, 127)])
def test_codes_at_a_limit_do_not_narrow_the_choice(slope: float, limits: tuple[int, int, int]) -> None:
    entering = np.arange(-12, 13)
    codes = np.clip(entering + limits[0], *limits[1:])
    assert not np.array_equal(_requantised(entering, np.float32(slope), limits), codes)
    found = find_multiplier(entering, codes, slope, limits)
    assert found is not None
    np.testing.assert_array_equal(_requantised(entering, found, limits), codes)
