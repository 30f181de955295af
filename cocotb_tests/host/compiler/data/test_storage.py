"""How tensors lie in the feature memory: addresses of channels, of folded rows, and what a border is."""

from __future__ import annotations

from lutterfly.host.compiler.data.storage import Fold, Storage, border_sign


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
