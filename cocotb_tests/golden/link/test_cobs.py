"""COBS against a package that nobody here wrote."""

from __future__ import annotations

import pytest
from cobs import cobs as judge
from hypothesis import example, given
from hypothesis import strategies as st

from lutterfly.golden.link.frames import DELIMITER, decode, encode, encoded_bytes

#: Bytes in which zeros are frequent, and long runs without one too.
frames = st.lists(
    st.one_of(
        st.binary(max_size=3),
        st.integers(250, 260).map(lambda length: b"\x55" * length),
        st.sampled_from([b"\0", b"\0\0", b"\xff", b"\x01"]),
    ),
    max_size=8,
).map(b"".join)


@given(frames)
@example(b"")
@example(b"\x01" * 254)
@example(b"\x01" * 254 + b"\0")
@example(b"\0" + b"\x01" * 508 + b"\0\0")
def test_encoding_is_that_of_the_judge(data: bytes) -> None:
    encoded = encode(data)
    assert encoded == judge.encode(data)
    assert DELIMITER not in encoded
    assert len(encoded) <= encoded_bytes(len(data))
    assert decode(encoded) == data


@given(st.lists(st.integers(0, 8) | st.just(255) | st.integers(0, 255), max_size=300).map(bytes))
@example(b"\x01")
@example(b"\xff" + b"\x02" * 254)
@example(b"\xff" + b"\x02" * 253)
def test_what_is_refused_and_decoded_is_so_by_the_judge(encoded: bytes) -> None:
    try:
        expected = judge.decode(encoded) if encoded else None
    except judge.DecodeError:
        expected = None
    if expected is None:
        with pytest.raises(ValueError, match="must be"):
            decode(encoded)
    else:
        assert decode(encoded) == expected


@pytest.mark.parametrize("length", [0, 1, 253, 254, 255, 508, 509, 1040])
def test_the_longest_encoding_is_as_long_as_said(length: int) -> None:
    assert len(encode(b"\x01" * length)) == encoded_bytes(length)
