"""The hardware's twin: what each request does, and what damaged or repeated ones do not."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lutterfly.golden.link import frames
from lutterfly.golden.link.bridge import BridgeModel
from lutterfly.golden.link.frames import NAK, Frame, Identity, pack_word
from lutterfly.golden.link.operations import AFTER, LINK_VERSION, MAX_DATA, RULES, Operation, Status

CLOCK_HZ = 25_000_000
ARENA_BYTES = 4096


class Board:
    """A bridge with registers 0 to 15, of which the last one refuses everything."""

    def __init__(self) -> None:
        self.registers = [0] * 16
        self.writes: list[tuple[int, int]] = []
        self.arena = bytearray(range(256)) * (ARENA_BYTES // 256)
        self.line = False
        self.waited: list[int] = []
        self.bridge = BridgeModel(
            CLOCK_HZ,
            self.arena,
            lambda address: (self.registers[address // 4], address != 60),
            self.write,
            register_bytes=64,
            interrupt=self.wait,
            cycles=lambda: (1 << 32) + 5,
        )

    def write(self, address: int, value: int) -> bool:
        self.writes.append((address, value))
        self.registers[address // 4] = value
        return address != 60

    def wait(self, cycles: int) -> bool:
        self.waited.append(cycles)
        return self.line

    def ask(self, request: Frame) -> Frame:
        """The only answer to a request."""
        answers = self.bridge.receive(request.encode())
        assert answers.count(0) == 1
        return Frame.decode(answers[:-1])


@pytest.fixture
def board() -> Board:
    return Board()


def test_identify(board: Board) -> None:
    answer = board.ask(Frame(7, Operation.IDENTIFY))
    identity = Identity(LINK_VERSION, CLOCK_HZ, ARENA_BYTES, MAX_DATA, 5)
    assert answer == Frame(7, Operation.IDENTIFY, Status.OK, 0, 20, identity.pack())


def test_registers(board: Board) -> None:
    written = board.ask(Frame(1, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(0xDEADBEEF)))
    assert written == Frame(1, Operation.WRITE_REGISTER, Status.OK, 8, 0)
    read = board.ask(Frame(2, Operation.READ_REGISTER, 0, 8, 4))
    assert read == Frame(2, Operation.READ_REGISTER, Status.OK, 8, 4, pack_word(0xDEADBEEF))
    board.registers[1] = 5
    several = board.ask(Frame(3, Operation.READ_REGISTERS, 0, 4, 12))
    assert several == Frame(3, Operation.READ_REGISTERS, Status.OK, 4, 12, b"".join(map(pack_word, (5, 0xDEADBEEF, 0))))
    # The last one, which refuses everything, is zero.
    board.registers[14:] = 8, 9
    assert board.ask(Frame(4, Operation.READ_REGISTERS, 0, 56, 8)).data == pack_word(8) + pack_word(0)
    assert len(board.ask(Frame(5, Operation.READ_REGISTERS, 0, 0, 64)).data) == 64
    for address, length, status in ((4, 64, Status.ADDRESS), (2, 4, Status.ADDRESS), (0, 68, Status.LENGTH)):
        assert board.ask(Frame(address, Operation.READ_REGISTERS, 0, address, length)).status == status
    for number, operation, data in ((3, Operation.READ_REGISTER, b""), (4, Operation.WRITE_REGISTER, bytes(4))):
        assert board.ask(Frame(number, operation, 0, 60, 4, data)).status == Status.REGISTER_REFUSED


def test_the_arena(board: Board) -> None:
    answer = board.ask(Frame(1, Operation.WRITE, 0, 1, 3, b"abc"))
    assert answer == Frame(1, Operation.WRITE, Status.OK, 1, 0)
    assert board.arena[:5] == b"\0abc\4"
    assert board.ask(Frame(2, Operation.READ, 0, 0, 5)).data == b"\0abc\4"
    checksum = board.ask(Frame(3, Operation.CHECKSUM, 0, 0, ARENA_BYTES))
    assert checksum.data == pack_word(zlib.crc32(board.arena))
    assert len(board.ask(Frame(4, Operation.READ, 0, ARENA_BYTES - MAX_DATA, MAX_DATA)).data) == MAX_DATA


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.CHECKSUM])
@pytest.mark.parametrize(("address", "fits"), [(ARENA_BYTES - 4, True), (ARENA_BYTES - 3, False), (0xFFFF_FFFF, False)])
def test_a_range_ends_within_the_arena(board: Board, operation: Operation, address: int, fits: bool) -> None:
    data = b"abcd" if RULES[operation].has_data else b""
    before = bytes(board.arena)
    answer = board.ask(Frame(1, operation, 0, address, 4, data))
    assert answer.status == (Status.OK if fits else Status.ADDRESS)
    assert (board.arena != before) == (fits and bool(data))


@pytest.mark.parametrize("address", [2, 64, 0x1_0000])
def test_no_register_there(board: Board, address: int) -> None:
    assert board.ask(Frame(1, Operation.READ_REGISTER, 0, address, 4)).status == Status.ADDRESS
    assert board.ask(Frame(2, Operation.WRITE_REGISTER, 0, address, 4, bytes(4))).status == Status.ADDRESS
    assert board.writes == []


@pytest.mark.parametrize("operation", RULES)
def test_a_wrong_length_is_refused(board: Board, operation: Operation) -> None:
    wrong = {
        Operation.READ: [0, MAX_DATA + 1],
        Operation.WRITE: [0],
        Operation.CHECKSUM: [0],
        Operation.IDENTIFY: [1],
        Operation.WAIT: [1 << 24],
        Operation.READ_REGISTERS: [0, 2, 6, 68, 132],
    }.get(operation, [3, 5])
    for number, length in enumerate(wrong):
        data = bytes(length) if RULES[operation].has_data else b""
        assert board.ask(Frame(number, operation, 0, 0, length, data)).status == Status.LENGTH
    other = Frame(9, operation, 0, 0, 4, b"abcde" if RULES[operation].has_data else b"a")
    assert board.ask(other).status == Status.LENGTH


@pytest.mark.parametrize("request_", [Frame(1, 0), Frame(1, 10), Frame(1, 255), Frame(1, Operation.IDENTIFY, 2)])
def test_an_unknown_operation_is_refused(board: Board, request_: Frame) -> None:
    assert board.ask(request_) == Frame(1, request_.operation, Status.UNKNOWN_OPERATION)


def test_a_repeated_request_is_carried_out_once(board: Board) -> None:
    start = Frame(5, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(1))
    refused = Frame(6, Operation.WRITE_REGISTER, 0, 60, 4, pack_word(1))
    for request, status in ((start, Status.OK), (refused, Status.REGISTER_REFUSED)):
        for _ in range(3):
            assert board.ask(request).status == status
    assert board.writes == [(8, 1), (60, 1)]
    read = Frame(7, Operation.READ_REGISTER, 0, 8, 4)
    for value in (3, 4):
        board.registers[2] = value
        assert board.ask(read).data == pack_word(value)


def test_another_request_of_the_same_number_is_refused(board: Board) -> None:
    board.ask(Frame(5, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(1)))
    assert board.ask(Frame(5, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(2))).status == Status.SEQUENCE
    assert board.ask(Frame(5, Operation.READ, 0, 0, 4)).status == Status.SEQUENCE
    # It is still the first one that is remembered.
    assert board.ask(Frame(5, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(1))).status == Status.OK
    assert board.writes == [(8, 1)]


def test_a_new_client_begins_with_identify(board: Board) -> None:
    write = Frame(0, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(1))
    board.ask(write)
    board.ask(Frame(0, Operation.IDENTIFY))
    assert board.ask(write).status == Status.OK
    assert board.writes == [(8, 1)] * 2


def test_rates(board: Board) -> None:
    initial = board.bridge.bit_time
    for parts, status in (
        (frames.LEAST_BIT_TIME - 1, Status.RATE),
        (frames.MOST_BIT_TIME + 1, Status.RATE),
        (frames.MOST_BIT_TIME, Status.OK),
        (frames.LEAST_BIT_TIME, Status.OK),
    ):
        answer = board.ask(Frame(parts & 0xFFFF, Operation.SET_RATE, 0, 0, 4, pack_word(parts)))
        assert answer == Frame(parts & 0xFFFF, Operation.SET_RATE, status)
    assert board.bridge.bit_time == frames.LEAST_BIT_TIME
    board.bridge.time_out()
    assert board.bridge.bit_time == initial
    # Its answer was lost: the same request again, at the initial rate, must set the rate again.
    board.ask(Frame(frames.LEAST_BIT_TIME, Operation.SET_RATE, 0, 0, 4, pack_word(frames.LEAST_BIT_TIME)))
    assert board.bridge.bit_time == frames.LEAST_BIT_TIME


def test_wait(board: Board) -> None:
    for line, status in ((False, Status.TIMED_OUT), (True, Status.OK)):
        board.line = line
        assert board.ask(Frame(5, Operation.WAIT, 0, 0, 1000)) == Frame(5, Operation.WAIT, status)
    assert board.waited == [1000, 1000]


@pytest.mark.parametrize("first", [5, 0xFFFF])
def test_a_request_that_comes_after_another_one_needs_it(board: Board, first: int) -> None:
    before = Frame(first, Operation.WRITE, 0, 0, 1, b"a")
    start = Frame((first + 1) % (1 << 16), Operation.WRITE_REGISTER, AFTER, 8, 4, pack_word(1))
    assert board.ask(start).status == Status.SEQUENCE
    assert board.ask(before).status == Status.OK
    assert board.ask(Frame((first + 2) % (1 << 16), Operation.READ, AFTER, 0, 1)).status == Status.SEQUENCE
    assert board.writes == []
    for _ in range(3):
        assert board.ask(start).status == Status.OK
    assert board.writes == [(8, 1)]
    # It is not the one before the last, either, that is known again.
    assert board.ask(replace(before, status=AFTER)).status == Status.SEQUENCE


def test_nothing_comes_after_a_request_that_was_refused(board: Board) -> None:
    wait, read = Frame(7, Operation.WAIT, 0, 0, 10), Frame(8, Operation.READ, AFTER, 0, 1)
    for line, status, then in ((False, Status.TIMED_OUT, Status.SEQUENCE), (True, Status.OK, Status.OK)):
        board.line = line
        assert [board.ask(request).status for request in (wait, read)] == [status, then]
    assert board.ask(Frame(9, Operation.READ, AFTER, ARENA_BYTES, 1)).status == Status.ADDRESS
    assert board.ask(Frame(10, Operation.READ, AFTER, 0, 1)).status == Status.SEQUENCE


def test_damaged_frames(board: Board) -> None:
    frame = Frame(1, Operation.WRITE, 0, 0, 2, b"ab").encode()
    before = bytes(board.arena)
    changed = bytes([*frame[:-2], frame[-2] ^ 1, 0])
    for damaged in (changed, b"\x01\0", b"\x05abc\0", b"\x01" * 1041 + b"\0", b"\xff" * 100_000 + b"\0"):
        assert board.bridge.receive(damaged) == NAK.encode()
    board.bridge.receive(frame[:5])
    board.bridge.damage()
    assert board.bridge.receive(frame[5:]) == NAK.encode()
    assert board.arena == before
    assert board.bridge.receive(frame) != NAK.encode()
    assert board.arena[:2] == b"ab"


def test_empty_frames_are_ignored(board: Board) -> None:
    assert board.bridge.receive(bytes(10)) == b""


@given(st.lists(st.sampled_from([*RULES, 0, 9]), max_size=5), st.data())
def test_bytes_may_come_in_any_pieces(operations: list[int], data: st.DataObject) -> None:
    line = b"".join(Frame(number, one, 0, 0, 4, b"abcd").encode() for number, one in enumerate(operations))
    whole, pieces = Board(), Board()
    answers = b""
    at = 0
    while at < len(line):
        size = data.draw(st.integers(1, 40))
        answers += pieces.bridge.receive(line[at : at + size])
        at += size
    assert answers == whole.bridge.receive(line)
    assert pieces.arena == whole.arena
    assert pieces.writes == whole.writes


@given(st.binary(max_size=200))
def test_whatever_comes_the_next_frame_is_answered(noise: bytes) -> None:
    board = Board()
    board.bridge.receive(noise + b"\0")
    assert board.ask(Frame(99, Operation.IDENTIFY)).sequence == 99
    assert board.writes == []
