"""A line to the bridge's golden twin, in virtual time, with faults of every kind in both directions."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lutterfly.golden.link import frames
from lutterfly.golden.link.bridge import BridgeModel
from lutterfly.golden.link.frames import NAK, Frame
from lutterfly.golden.link.operations import QUEUE_BYTES, Operation, Status

#: How far the rates of both sides may be apart.
_TOLERANCE = 0.03
_BYTE_BITS = 10
#: What the board takes for a byte of its arena.
_BYTE_CYCLES = 10


class VirtualClock:
    """Seconds that pass when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Faults:
    """What happens to each byte on its way, with these probabilities.

    ``count`` is how many bytes it has happened to.
    """

    rng: np.random.Generator
    drop: float = 0.0
    double: float = 0.0
    change: float = 0.0
    insert: float = 0.0
    count: int = 0
    #: So many passages from now are lost as a whole.
    swallow: int = 0

    def __call__(self, data: bytes) -> bytes:
        if self.swallow and data:
            self.swallow -= 1
            return b""
        chances = self.rng.random((len(data), 4)) < (self.drop, self.double, self.change, self.insert)
        if not chances.any():
            return data
        self.count += int(chances.any(axis=1).sum())
        found = bytearray()
        for byte, (drop, double, change, insert) in zip(data, chances, strict=True):
            if insert:
                found.append(int(self.rng.integers(256)))
            if not drop:
                found.append(byte ^ int(self.rng.integers(1, 256)) if change else byte)
            if double:
                found.append(byte)
        return bytes(found)


class Accelerator:
    """Registers that remember who wrote them, and an arena."""

    def __init__(self, arena_bytes: int = 4096):
        self.arena = bytearray(arena_bytes)
        self.registers = {4 * number: number for number in range(16)}
        self.written: list[tuple[int, int]] = []
        self.interrupt = False

    def read_register(self, address: int) -> tuple[int, bool]:
        return self.registers.get(address, 0), address in self.registers

    def write_register(self, address: int, value: int) -> bool:
        if address not in self.registers:
            return False
        self.written.append((address, value))
        self.registers[address] = value
        return True


class BridgeLine:
    """A line to a board: both directions carry bytes at the same time, and the board takes its time as well.

    Attributes
    ----------
    to_board, to_host : Faults
    best_rate : int
        Bits a second, at most, that the cable carries.
    latency_s : float
        Seconds that the adapter keeps what comes from the board.
    pulled : bool
        Nothing passes any more.
    at : float
        The time at the board.
    executed : list of Frame
        Requests that the board has carried out.
    most_waiting : int
        Bytes that have waited at the board at most, while it was busy.
    sent, writes : int
        Bytes sent, and how often.
    """

    name = "/dev/ttyTEST"

    def __init__(
        self,
        clock: VirtualClock,
        accelerator: Accelerator | None = None,
        *,
        clock_hz: int = 50_000_000,
        slowness: float = 1.0,
        latency_s: float = 0.0,
        seed: int = 0,
    ):
        self.clock = clock
        self.accelerator = accelerator or Accelerator()
        self._slowness = slowness
        self.latency_s = latency_s
        self.slowness = 1.0
        self._rng = np.random.default_rng(seed)
        self.to_board, self.to_host = Faults(self._rng), Faults(self._rng)
        self.best_rate = 10_000_000
        self.pulled = self.is_closed = False
        self.rate = frames.INITIAL_RATE
        self.at = 0.0
        self._sent = self._good = 0.0
        self._arriving: deque[tuple[float, bytes]] = deque()
        #: When each byte has come that the board takes only now.
        self._waiting: deque[float] = deque()
        self.most_waiting = self.sent = self.writes = 0
        self.executed: list[Frame] = []
        self.bridge = BridgeModel(
            clock_hz,
            self.accelerator.arena,
            self.accelerator.read_register,
            self.accelerator.write_register,
            register_bytes=256,
            interrupt=self._wait,
            cycles=lambda: int(self.at * clock_hz / slowness),
        )
        for operation, carry_out in self.bridge._carry_out.items():
            self.bridge._carry_out[operation] = functools.partial(self._carry_out, carry_out)

    def _carry_out(self, carry_out: Callable[[Frame], tuple[Status, bytes]], request: Frame) -> tuple[Status, bytes]:
        self.executed.append(request)
        if request.operation in (Operation.READ, Operation.WRITE, Operation.CHECKSUM):
            self._pass_cycles(_BYTE_CYCLES * request.length)
        return carry_out(request)

    def set_rate(self, rate: int) -> None:
        self.clock.now = max(self.clock.now, self._sent)
        self.rate = rate
        self._arriving.clear()

    def write(self, data: bytes) -> None:
        self.sent += len(data)
        self.writes += 1
        self._sent = max(self._sent, self.clock.now)
        if self.pulled:
            self._sent += self._line_s(len(data))
            return
        if self._sent - self._good > frames.RATE_TIMEOUT_S * self._slowness:
            self.bridge.time_out()
        for byte in self.to_board(data):
            self._sent += self._line_s(1)
            self._come(byte)

    def _come(self, byte: int) -> None:
        """Let a byte come to the board, where it waits if the board is busy."""
        while self._waiting and self._waiting[0] <= self._sent:
            self._waiting.popleft()
        if self.at > self._sent:
            if len(self._waiting) == QUEUE_BYTES:
                return
            self._waiting.append(self.at)
            self.most_waiting = max(self.most_waiting, len(self._waiting))
        self.at = max(self.at, self._sent)
        heard = self._hears()
        if not heard:
            self.bridge.damage()
        answer = self.bridge.receive(bytes([byte if heard else int(self._rng.integers(256))]))
        if not answer:
            return
        if answer != NAK.encode():
            self._good = self.at
        self.at += self._line_s(len(answer))
        self._arriving.append(
            (self.at + self.latency_s, self.to_host(answer if heard else self._rng.bytes(len(answer))))
        )

    def read(self, limit_s: float) -> bytes:
        limit = self.clock.now + limit_s
        while self._arriving and self._arriving[0][0] <= limit:
            time, found = self._arriving.popleft()
            self.clock.now = max(self.clock.now, time)
            if found:
                return found
        self.clock.now = limit
        return b""

    def close(self) -> None:
        self.is_closed = True

    def _hears(self) -> bool:
        """Whether the two sides understand each other."""
        board = frames.PARTS * self.bridge.clock_hz / self.bridge.bit_time
        return abs(board / self.rate - 1) < _TOLERANCE and max(board, self.rate) <= self.best_rate

    def _line_s(self, size: int) -> float:
        return self._slowness * size * _BYTE_BITS / self.rate

    def _pass_cycles(self, cycles: int) -> None:
        self.at += self._slowness * cycles / self.bridge.clock_hz

    def _wait(self, cycles: int) -> bool:
        # What a run is, is done when somebody looks.
        is_high = self.accelerator.interrupt
        if not is_high:
            self._pass_cycles(cycles)
        return is_high
