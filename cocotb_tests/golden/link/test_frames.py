"""Frames of the link: packed and found again, damaged ones refused, COBS against a package that nobody here wrote."""

from __future__ import annotations

import struct
import zlib

import pytest
from cobs import cobs as judge
from hypothesis import example, given
from hypothesis import strategies as st

from lutterfly.golden.link import frames
from lutterfly.golden.link.frames import DELIMITER, DamagedFrameError, Frame, Identity, decode, encode, encoded_bytes
from lutterfly.golden.link.operations import IDENTITY, MAX_DATA

U32 = st.integers(0, (1 << 32) - 1)
BYTE = st.integers(0, 255)
any_frame = st.builds(
    Frame, sequence=st.integers(0, 65535), operation=BYTE, status=BYTE, address=U32, length=U32, data=st.binary()
)


@given(any_frame)
def test_a_frame_is_found_again(frame: Frame) -> None:
    encoded = frame.encode()
    assert encoded[-1] == 0
    assert Frame.decode(encoded[:-1]) == frame


@given(any_frame)
def test_a_frame_is_laid_out_as_the_page_says(frame: Frame) -> None:
    header = struct.pack("<HBBII", frame.sequence, frame.operation, frame.status, frame.address, frame.length)
    whole = header + frame.data
    assert judge.decode(frame.encode()[:-1]) == whole + struct.pack("<I", zlib.crc32(whole))
    for name, (at, size) in frames.FIELDS.items():
        assert int.from_bytes(whole[at : at + size], "little") == getattr(frame, name)


@given(any_frame, st.data())
def test_a_changed_bit_is_noticed(frame: Frame, data: st.DataObject) -> None:
    encoded = bytearray(frame.encode()[:-1])
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    try:
        found = Frame.decode(bytes(encoded))
    except DamagedFrameError:
        return
    pytest.fail(f"{found} for {frame}")


@pytest.mark.parametrize("length", [0, 15, 1041])
def test_a_frame_of_another_length_is_damaged(length: int) -> None:
    content = bytes(max(0, length - 4))
    whole = content + struct.pack("<I", zlib.crc32(content)) if length >= 4 else b""
    with pytest.raises(DamagedFrameError, match=f"a frame must have 16 to 1040 bytes, not {length}"):
        Frame.decode(judge.encode(whole))


def test_the_longest_frame_is_as_long_as_said() -> None:
    frame = Frame(0xFFFF, 0xFF, 0xFF, 0xFFFF_FFFF, 0xFFFF_FFFF, b"\xff" * MAX_DATA)
    assert len(frame.encode()) == frames.MOST_ENCODED_BYTES == 1046


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (Frame(1 << 16, 1), "sequence must be between 0 and 65535, not 65536"),
        (Frame(0, 256), "operation must be between 0 and 255, not 256"),
        (Frame(0, 1, address=-1), "address must be between 0 and 4294967295, not -1"),
        (Frame(0, 1, data=bytes(MAX_DATA + 1)), "data must be at most 1024 bytes, not 1025"),
    ],
)
def test_what_does_not_fit_is_refused(frame: Frame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        frame.encode()


def test_words_are_of_four_bytes() -> None:
    assert frames.pack_word(0x01020304) == b"\x04\x03\x02\x01"
    assert frames.parse_word(b"\x04\x03\x02\x01") == 0x01020304
    with pytest.raises(ValueError, match="data must be 4 bytes, not 5"):
        frames.parse_word(bytes(5))


def test_an_identity_is_found_again_and_may_grow() -> None:
    identity = Identity(1, 100_000_000, 65536, 1024, 0xFFFF_FFFF)
    assert len(identity.pack()) == 4 * len(IDENTITY)
    assert Identity.parse(identity.pack()) == identity
    assert Identity.parse(identity.pack() + bytes(4)) == identity
    with pytest.raises(ValueError, match="data must be at least 20 bytes, not 16"):
        Identity.parse(bytes(16))


# COBS against a package that nobody here wrote.

#: Bytes in which zeros are frequent, and long runs without one too.
drawn_frames = st.lists(
    st.one_of(
        st.binary(max_size=3),
        st.integers(250, 260).map(lambda length: b"\x55" * length),
        st.sampled_from([b"\0", b"\0\0", b"\xff", b"\x01"]),
    ),
    max_size=8,
).map(b"".join)


@given(drawn_frames)
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


# A bit's time in sixteenths of a cycle.


@given(st.integers(25_000_000, 200_000_000), st.sampled_from([115_200, 230_400, 921_600, 1_000_000, 3_000_000]))
def test_usual_rates_are_within_four_parts_in_a_thousand(clock_hz: int, rate: int) -> None:
    assert frames.PARTS * clock_hz / frames.bit_time(clock_hz, rate) == pytest.approx(rate, rel=4e-3)


@pytest.mark.parametrize(("clock_hz", "rate"), [(25_000_000, 3_125_000), (471_852_000, 115_200)])
def test_the_limits_are_allowed_and_what_is_beyond_is_not(clock_hz: int, rate: int) -> None:
    assert frames.bit_time(clock_hz, rate) in (frames.LEAST_BIT_TIME, frames.MOST_BIT_TIME)
    beyond = rate * 1.01 if frames.bit_time(clock_hz, rate) == frames.LEAST_BIT_TIME else rate * 0.99
    with pytest.raises(ValueError, match=r"rate must be between \d+ and \d+ bits a second at a clock of \d+ Hz, not"):
        frames.bit_time(clock_hz, beyond)


def test_the_time_limit_is_a_second() -> None:
    assert frames.rate_timeout_cycles(25_000_000) == 25_000_000
