"""A software model of the hardware bridge, which carries out a host's requests: bytes in, bytes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from . import frames
from .frames import MOST_ENCODED_BYTES, NAK, DamagedFrameError, Frame, Identity, pack_word, parse_word
from .operations import AFTER, LINK_VERSION, MAX_DATA, RULES, WORD_BYTES, Operation, Status

__all__ = ["BridgeModel"]


class BridgeModel:
    """Answer requests as the hardware does, in no time.

    A frame takes effect when its delimiter has come and its CRC is right. The one request that is remembered is the
    last good one, by its number, its CRC and its answer's status; it is forgotten at an IDENTIFY.

    Parameters
    ----------
    clock_hz : int
        Cycles in a second.
    arena : bytearray
        The memory that host and accelerator share.
    read_register : callable
        Takes an address; returns (value, whether there is such a register to read).
    write_register : callable
        Takes an address and a value; returns whether there is such a register to write.
    register_bytes : int
        Register addresses are below this number.
    interrupt : callable
        Takes a number of cycles; returns whether the interrupt line is high within that many cycles.
    cycles : callable
        Returns the cycles since reset.

    Attributes
    ----------
    bit_time : int
        The duration of a bit on the line, in sixteenths of a cycle. A new rate takes effect after the answer to
        SET_RATE.
    """

    def __init__(
        self,
        clock_hz: int,
        arena: bytearray,
        read_register: Callable[[int], tuple[int, bool]],
        write_register: Callable[[int, int], bool],
        *,
        register_bytes: int,
        interrupt: Callable[[int], bool],
        cycles: Callable[[], int] = lambda: 0,
    ):
        self.clock_hz = clock_hz
        self.arena = arena
        self.read_register = read_register
        self.write_register = write_register
        self.register_bytes = register_bytes
        self.interrupt = interrupt
        self.cycles = cycles
        self.bit_time = self.initial_bit_time = frames.bit_time(clock_hz, frames.INITIAL_RATE)
        self._received = bytearray()
        self._damaged = False
        self._last: tuple[int, int] | None = None
        self._status = Status.OK
        self._carry_out = {
            Operation.IDENTIFY: self._identify,
            Operation.READ_REGISTER: self._read_register,
            Operation.WRITE_REGISTER: self._write_register,
            Operation.READ: self._read,
            Operation.WRITE: self._write,
            Operation.CHECKSUM: self._checksum,
            Operation.SET_RATE: self._set_rate,
            Operation.WAIT: self._wait,
            Operation.READ_REGISTERS: self._read_registers,
        }

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the line and return the answers to the frames that end in them."""
        answers = bytearray()
        for byte in data:
            if byte != frames.DELIMITER:
                # Bytes beyond the longest frame need not be kept.
                self._damaged |= len(self._received) >= MOST_ENCODED_BYTES
                if not self._damaged:
                    self._received.append(byte)
                continue
            answers += self._answer()
            self._received.clear()
            self._damaged = False
        return bytes(answers)

    def damage(self) -> None:
        """Receive a byte without its stop bit: it is no delimiter, and the present frame is damaged."""
        self._damaged = True

    def time_out(self) -> None:
        """Return to the initial rate, as the hardware does after ``RATE_TIMEOUT_S`` without a good frame."""
        self.bit_time = self.initial_bit_time

    def _answer(self) -> bytes:
        if not self._received and not self._damaged:
            return b""
        if self._damaged:
            return NAK.encode()
        try:
            request = Frame.decode(bytes(self._received))
        except DamagedFrameError:
            return NAK.encode()
        return self._execute(request).encode()

    def _execute(self, request: Frame) -> Frame:
        if request.operation == Operation.IDENTIFY:
            self._last = None
        elif self._last is not None and self._last[0] == request.sequence:
            if self._last[1] != request.crc:
                return request.answered(Status.SEQUENCE)
            if self._rule_is_once(request):
                return request.answered(self._status)
        elif request.status == AFTER and not self._follows(request):
            return request.answered(Status.SEQUENCE)
        status, data = self._result(request)
        if request.operation != Operation.IDENTIFY:
            self._last, self._status = (request.sequence, request.crc), status
        return request.answered(status, data)

    def _follows(self, request: Frame) -> bool:
        """Return whether the last request is the one before this one, and was carried out."""
        before = (request.sequence - 1) % (1 << 16)
        return self._last is not None and self._last[0] == before and self._status == Status.OK

    @staticmethod
    def _rule_is_once(request: Frame) -> bool:
        return request.operation in RULES and RULES[Operation(request.operation)].once

    def _result(self, request: Frame) -> tuple[Status, bytes]:
        """Check and carry out a request; return the status and data of its answer."""
        if request.operation not in RULES or request.status > AFTER:
            return Status.UNKNOWN_OPERATION, b""
        operation = Operation(request.operation)
        for is_right, status in (
            (self._length_is_right(operation, request), Status.LENGTH),
            (self._address_is_right(operation, request), Status.ADDRESS),
        ):
            if not is_right:
                return status, b""
        return self._carry_out[operation](request)

    @staticmethod
    def _length_is_right(operation: Operation, request: Frame) -> bool:
        return RULES[operation].length.fits(request.length) and len(request.data) == (
            request.length if RULES[operation].has_data else 0
        )

    def _address_is_right(self, operation: Operation, request: Frame) -> bool:
        if operation in (Operation.READ, Operation.WRITE, Operation.CHECKSUM):
            return request.address + request.length <= len(self.arena)
        if operation in (Operation.READ_REGISTER, Operation.WRITE_REGISTER, Operation.READ_REGISTERS):
            return request.address + request.length <= self.register_bytes and request.address % WORD_BYTES == 0
        return True

    def _identify(self, request: Frame) -> tuple[Status, bytes]:
        cycles = self.cycles() & 0xFFFF_FFFF
        return Status.OK, Identity(LINK_VERSION, self.clock_hz, len(self.arena), MAX_DATA, cycles).pack()

    def _read_register(self, request: Frame) -> tuple[Status, bytes]:
        value, is_there = self.read_register(request.address)
        return (Status.OK, pack_word(value)) if is_there else (Status.REGISTER_REFUSED, b"")

    def _read_registers(self, request: Frame) -> tuple[Status, bytes]:
        found = map(self.read_register, range(request.address, request.address + request.length, WORD_BYTES))
        return Status.OK, b"".join(pack_word(value if is_there else 0) for value, is_there in found)

    def _write_register(self, request: Frame) -> tuple[Status, bytes]:
        is_there = self.write_register(request.address, parse_word(request.data))
        return Status.OK if is_there else Status.REGISTER_REFUSED, b""

    def _range(self, request: Frame) -> bytes:
        return bytes(self.arena[request.address : request.address + request.length])

    def _read(self, request: Frame) -> tuple[Status, bytes]:
        return Status.OK, self._range(request)

    def _write(self, request: Frame) -> tuple[Status, bytes]:
        self.arena[request.address : request.address + request.length] = request.data
        return Status.OK, b""

    def _checksum(self, request: Frame) -> tuple[Status, bytes]:
        return Status.OK, pack_word(zlib.crc32(self._range(request)))

    def _set_rate(self, request: Frame) -> tuple[Status, bytes]:
        parts = parse_word(request.data)
        if not frames.LEAST_BIT_TIME <= parts <= frames.MOST_BIT_TIME:
            return Status.RATE, b""
        self.bit_time = parts
        return Status.OK, b""

    def _wait(self, request: Frame) -> tuple[Status, bytes]:
        return (Status.OK if self.interrupt(request.length) else Status.TIMED_OUT), b""
