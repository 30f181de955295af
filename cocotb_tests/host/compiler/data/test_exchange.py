"""Regions: what two of them share, and where one lies in another."""

from __future__ import annotations

from lutterfly.host.compiler.network import Region

ONE, OTHER = Region(range(2, 6), range(8)), Region(range(5, 9), range(4, 12))


def test_what_two_regions_have_in_common() -> None:
    assert ONE.meet(OTHER) == OTHER.meet(ONE) == Region(range(5, 6), range(4, 8))
    assert ONE.meet(Region(range(6, 9), range(8))) is None
    assert ONE.meet(Region(range(2, 6), range(8, 9))) is None


def test_what_holds_both() -> None:
    assert ONE.join(OTHER) == Region(range(2, 9), range(12))
    assert ONE.join(OTHER).holds(ONE)
    assert ONE.join(OTHER).holds(OTHER)
    assert not ONE.holds(OTHER)
    assert ONE.holds(ONE)


def test_a_region_is_counted_from_another_one() -> None:
    assert OTHER.within(ONE) == Region(range(3, 7), range(4, 12))
    assert ONE.within(ONE) == Region(range(4), range(8))
