# amaranth: UnusedElaboratable=no
"""Device layer: what its parameters may be."""

from __future__ import annotations

import pytest

from lutterfly.hdl.parts.device import Ram


@pytest.mark.parametrize("granularity", [-1, 0, 3, 16])
def test_granularity_divides_the_width(granularity: int) -> None:
    message = rf"^granularity must be a divisor of width \(8 bits\), not {granularity}$"
    with pytest.raises(ValueError, match=message):
        Ram(width=8, depth=4, granularity=granularity)


@pytest.mark.parametrize(("granularity", "enables"), [(1, 8), (4, 2), (8, 1), (None, 1)])
def test_a_write_enable_for_each_part(granularity: int | None, enables: int) -> None:
    assert len(Ram(width=8, depth=4, granularity=granularity).write_enable) == enables
