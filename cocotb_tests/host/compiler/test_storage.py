"""Where tensors lie in the feature memory: addresses of channels and folded rows, and regions of tensors."""

from __future__ import annotations

import numpy as np

from lutterfly.host.compiler.network import Region
from lutterfly.host.compiler.storage import Fold, Storage, border_sign
from lutterfly.host.graph import ViewPlace


def test_a_border_of_bits_is_all_ones_for_plus_one() -> None:
    assert [border_sign(Storage(1, 1, 8, value=value, bits=1)) for value in (-1, 0)] == [1, -1]


def test_some_channels_of_a_pixel_have_bytes_of_their_own() -> None:
    codes, bits = Storage(1, 2, 24, address=100), Storage(1, 2, 24, address=100, bits=1)
    assert codes.addresses(channels=range(16, 18)).tolist() == [116, 117, 140, 141]
    assert bits.addresses(channels=range(16, 24)).tolist() == [102, 105]
    assert [storage.channel_offset(16) for storage in (codes, bits)] == [16, 2]


def test_a_folded_row_has_the_channels_of_all_its_rows() -> None:
    folded = Storage(1, 2, 6, fold=Fold(rows=2, step=2, dilation=1, top=0), address=10)
    assert folded.addresses(channels=range(3)).tolist() == [*range(10, 22)]


def test_a_view_is_some_rows_and_channels_as_a_tensor_of_its_own() -> None:
    whole = Storage(6, 3, 8, top=1, left=1, bottom=2, right=1, gap=2, address=100)
    view = whole.view(ViewPlace("whole", channel=4, row=2), (3, 3, 4))
    np.testing.assert_array_equal(view.addresses(), whole.addresses(rows=range(2, 5), channels=range(4, 8)))
    # What lies around its rows is its border, and its windows read that as they would.
    assert (view.top, view.bottom, view.size_bytes) == (3, 3, whole.size_bytes - 4)
    assert view.origin == whole.origin + 2 * whole.row_pitch + 4


def test_a_part_is_addressed_as_the_whole() -> None:
    whole = Storage(6, 3, 8, top=1, left=1, bottom=1, right=1, gap=2, address=100, row=1, channel=8)
    part = whole.part(range(3, 5), range(12, 16))
    assert (part.rows, part.channel, part.origin) == (range(3, 5), 12, whole.origin)
    np.testing.assert_array_equal(part.addresses(), whole.addresses(rows=range(3, 5), channels=range(12, 16)))


# Regions: what two of them share, and where one lies in another.

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
