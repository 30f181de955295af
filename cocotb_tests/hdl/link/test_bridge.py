# amaranth: UnusedElaboratable=no
"""The bridge against its golden twin: the same bytes in, the same bytes out, and the same done in between."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable

import cocotb
import numpy as np
import pytest
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, RisingEdge

from cocotb_tests.support.benches.clocking import start
from lutterfly.golden.link.bridge import BridgeModel
from lutterfly.golden.link.frames import NAK, Frame, Identity, pack_word
from lutterfly.golden.link.operations import AFTER, LINK_VERSION, MAX_DATA, QUEUE_BYTES, RULES, Operation, Status
from lutterfly.hdl.link.bridge import Bridge

# The bridge between bytes, registers and an arena, each at its own pace, beside its golden twin.

CLOCK_HZ = 25_000_000
ARENA_BYTES = 4096
REGISTER_BITS = 6
#: The register that there is not.
REFUSED = 60
#: Cycles between bytes, at least.
PACE = 4


class LinkBench:
    """The bridge ``dut`` with surroundings that stall at random.

    Attributes
    ----------
    twin : BridgeModel
        With an arena and registers of its own, and the same contents.
    arena : bytearray, registers : list of int
        Those behind ``dut``; ``writes`` and ``twin_writes`` are the accesses that came.
    answers : bytearray
        What ``dut`` has sent.
    """

    def __init__(self, dut: HierarchyObject, seed: int, p_stall: float):
        self.dut = dut
        self.rng = np.random.default_rng(seed)
        self.p_stall = p_stall
        self.arena = bytearray(self.rng.bytes(ARENA_BYTES))
        self.registers = [int(value) for value in self.rng.integers(0, 1 << 32, (1 << REGISTER_BITS) // 4)]
        self.writes: list[tuple[int, int]] = []
        self.twin_writes: list[tuple[int, int]] = []
        self.answers = bytearray()
        self.line = False
        self.host_requests = 0
        self.register_requests = 0
        self._twin_registers = list(self.registers)
        self.twin = BridgeModel(
            CLOCK_HZ,
            bytearray(self.arena),
            lambda address: (self._twin_registers[address // 4], address != REFUSED),
            self._write_twin,
            register_bytes=1 << REGISTER_BITS,
            interrupt=lambda cycles: self.line,
        )

    def _write_twin(self, address: int, value: int) -> bool:
        self.twin_writes.append((address, value))
        if address != REFUSED:
            self._twin_registers[address // 4] = value
        return address != REFUSED

    def stalls(self) -> bool:
        return bool(self.rng.random() < self.p_stall)

    async def begin(self) -> None:
        inputs = ("received__valid", "received__payload", "sent__ready", "interrupt")
        bus = ("awready", "wready", "bvalid", "bresp", "arready", "rvalid", "rresp", "rdata")
        names = (*inputs, *(f"control__{name}" for name in bus))
        host = ("request__ready", "answer__valid", "answer__payload")
        await start(self.dut, dict.fromkeys((*names, *(f"host__{name}" for name in host)), 0))
        for task in (self._take(), self._registers(), self._host()):
            cocotb.start_soon(task)

    def interrupt(self, line: bool) -> None:
        """Set the interrupt line."""
        self.line = line
        self.dut.interrupt.value = line

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def send(self, data: Iterable[int], errors: Iterable[int] = ()) -> None:
        """Give it bytes; those at the places ``errors`` come without a stop bit."""
        errors = set(errors)
        for place, byte in enumerate(data):
            self.dut.received__payload.value = byte | (place in errors) << 8
            self.dut.received__valid.value = 1
            await RisingEdge(self.dut.clk)
            self.dut.received__valid.value = 0
            await self.cycles(PACE - 1)

    async def answered(self, most_cycles: int = 60_000) -> bytes:
        """The next answer, with its delimiter."""
        for _ in range(most_cycles):
            if 0 in self.answers:
                end = self.answers.index(0) + 1
                answer, self.answers = bytes(self.answers[:end]), self.answers[end:]
                # It listens again a few cycles later.
                await self.cycles(6)
                return answer
            await RisingEdge(self.dut.clk)
        raise AssertionError(f"no answer within {most_cycles} cycles")

    async def _transfer(self, prefix: str, *, ready: bool) -> int:
        """Take a word, or give one: wait for the other side; what the payload is then."""
        own, other = (f"{prefix}ready", f"{prefix}valid") if ready else (f"{prefix}valid", f"{prefix}ready")
        while self.stalls():
            await RisingEdge(self.dut.clk)
        getattr(self.dut, own).value = 1
        while True:
            await FallingEdge(self.dut.clk)
            done = getattr(self.dut, other).value == 1
            payload = getattr(self.dut, f"{prefix}payload", None)
            value = int(payload.value) if done and payload is not None and payload.value.is_resolvable else 0
            await RisingEdge(self.dut.clk)
            if done:
                getattr(self.dut, own).value = 0
                return value

    async def _take(self) -> None:
        while True:
            byte = await self._transfer("sent__", ready=True)
            # Not before: meanwhile an answer may have been taken from here.
            self.answers.append(byte)

    async def _registers(self) -> None:
        dut = self.dut
        while True:
            await FallingEdge(dut.clk)
            writes, reads = dut.control__awvalid.value == 1, dut.control__arvalid.value == 1
            await RisingEdge(dut.clk)
            if not writes and not reads:
                continue
            self.register_requests += 1
            address = int((dut.control__awaddr if writes else dut.control__araddr).value)
            response = 2 if address == REFUSED else 0
            if writes:
                value = int(dut.control__wdata.value)
                assert int(dut.control__wstrb.value) == 15
                channels = ["aw", "w"] if self.rng.random() < 0.5 else ["w", "aw"]
                for channel in channels:
                    await self._transfer(f"control__{channel}", ready=True)
                self.writes.append((address, value))
                if not response:
                    self.registers[address // 4] = value
                dut.control__bresp.value = response
                await self._transfer("control__b", ready=False)
            else:
                await self._transfer("control__ar", ready=True)
                dut.control__rresp.value, dut.control__rdata.value = response, self.registers[address // 4]
                await self._transfer("control__r", ready=False)

    async def _host(self) -> None:
        dut = self.dut
        bits = len(dut.host__request__payload) - 9
        while True:
            request = await self._transfer("host__request__", ready=True)
            self.host_requests += 1
            address = request & (1 << bits) - 1
            if request >> bits & 1:
                self.arena[address] = request >> bits + 1
                continue
            await self.cycles(int(self.rng.integers(1, 5)))
            dut.host__answer__valid.value, dut.host__answer__payload.value = 1, self.arena[address]
            await RisingEdge(dut.clk)
            dut.host__answer__valid.value = 0

    def check_same(self) -> None:
        """Nothing differs from the twin."""
        assert self.arena == self.twin.arena
        assert self.registers == self._twin_registers
        assert self.writes == self.twin_writes
        assert int(self.dut.bit_time.value) == self.twin.bit_time


RATE_TIMEOUT = 4000


#: Frames and what they are drawn from; 100,000 more in tests that end on a slow machine before a hanging one would.
DRAWN = [(400, 5), *(pytest.param(5000, seed, marks=pytest.mark.regress) for seed in range(20))]


@pytest.mark.regress
@pytest.mark.verilator
@pytest.mark.parametrize(("frames", "seed"), DRAWN)
def test_bridge(simulate, frames: int, seed: int) -> None:
    bridge = Bridge(clock_hz=CLOCK_HZ, arena_bytes=ARENA_BYTES, register_bits=REGISTER_BITS, rate_timeout=RATE_TIMEOUT)
    simulate(bridge, env={"FRAMES": str(frames), "SEED": str(seed)})


def test_a_clock_that_is_too_slow_is_refused() -> None:
    with pytest.raises(ValueError, match="rate must be between"):
        Bridge(clock_hz=900_000, arena_bytes=ARENA_BYTES, register_bits=REGISTER_BITS)


async def exchange(bench: LinkBench, data: bytes, errors: tuple[int, ...] = ()) -> bytes:
    """Send a frame to both; the answer of both, if there is one."""
    if errors:
        bench.twin.damage()
        clean = bytes(byte for place, byte in enumerate(data) if place not in errors)
        expected = bench.twin.receive(clean)
    else:
        expected = bench.twin.receive(data)
    await bench.send(data, errors)
    if not expected:
        await bench.cycles(12)
        assert not bench.answers
        return b""
    answer = await bench.answered()
    frame = Frame.decode(answer[:-1])
    if frame.operation == Operation.IDENTIFY and frame.status == Status.OK:
        identity = Identity.parse(frame.data)
        assert (identity.link_version, identity.clock_hz) == (LINK_VERSION, CLOCK_HZ)
        assert (identity.arena_bytes, identity.max_data) == (ARENA_BYTES, MAX_DATA)
    else:
        assert answer == expected
    return answer


async def begun(dut, seed: int = 0, p_stall: float = 0.0) -> LinkBench:
    bench = LinkBench(dut, seed, p_stall)
    await bench.begin()
    return bench


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def every_operation_as_in_the_twin(dut) -> None:
    bench = await begun(dut)
    requests = [
        Frame(0, Operation.IDENTIFY),
        Frame(1, Operation.WRITE_REGISTER, 0, 8, 4, pack_word(0xDEADBEEF)),
        Frame(2, Operation.READ_REGISTER, 0, 8, 4),
        Frame(3, Operation.READ_REGISTER, 0, REFUSED, 4),
        Frame(4, Operation.WRITE_REGISTER, 0, REFUSED, 4, bytes(4)),
        Frame(5, Operation.WRITE, 0, ARENA_BYTES - 300, 300, bytes(range(150)) * 2),
        Frame(6, Operation.READ, 0, ARENA_BYTES - MAX_DATA, MAX_DATA),
        Frame(7, Operation.WRITE, 0, 0, MAX_DATA, b"\xff" * MAX_DATA),
        Frame(8, Operation.READ, 0, 0, MAX_DATA),
        Frame(9, Operation.READ, 0, 5, 1),
        Frame(10, Operation.CHECKSUM, 0, 0, ARENA_BYTES),
        Frame(11, Operation.WAIT, 0, 0, 100),
        Frame(12, Operation.READ_REGISTERS, 0, 0, 64),
        Frame(13, Operation.READ_REGISTERS, 0, REFUSED - 4, 8),
        Frame(14, Operation.READ_REGISTERS, 0, REFUSED, 8),
        Frame(15, 0x99),
    ]
    for request in requests:
        await exchange(bench, request.encode())
        bench.check_same()
    for operation in (Operation.READ, Operation.WRITE, Operation.CHECKSUM):
        for address in (ARENA_BYTES - 4, ARENA_BYTES - 3, ARENA_BYTES, 1 << 31, (1 << 32) - 2):
            data = b"abcd" if RULES[operation].has_data else b""
            await exchange(bench, Frame(address & 0xFFFF, operation, 0, address, 4, data).encode())
    for length in (ARENA_BYTES + 1, 1 << 31, (1 << 32) - 1):
        await exchange(bench, Frame(length & 0xFFFF, Operation.CHECKSUM, 0, 1, length).encode())
    bench.check_same()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_repeated_start_is_carried_out_once(dut) -> None:
    bench = await begun(dut)
    start = Frame(77, Operation.WRITE_REGISTER, 0, 12, 4, pack_word(1))
    for _ in range(3):
        await exchange(bench, start.encode())
    await exchange(bench, Frame(77, Operation.WRITE_REGISTER, 0, 12, 4, pack_word(2)).encode())
    await exchange(bench, start.encode())
    assert bench.writes == [(12, 1)]
    await exchange(bench, Frame(0, Operation.IDENTIFY).encode())
    await exchange(bench, start.encode())
    assert bench.writes == [(12, 1)] * 2


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def damaged_frames_do_nothing(dut) -> None:
    bench = await begun(dut)
    frame = Frame(1, Operation.WRITE, 0, 0, 2, b"ab").encode()
    for place in range(len(frame) - 1):
        changed = bytearray(frame)
        changed[place] ^= 1 << place % 8 if frame[place] != 1 << place % 8 else 0xFF
        assert await exchange(bench, bytes(changed)) == NAK.encode()
        assert await exchange(bench, frame, (place,)) == NAK.encode()
    for damaged in (b"\x01\0", b"\x05abc\0", b"\x01" * 1041 + b"\0", b"\xff" * 3000 + b"\0"):
        assert await exchange(bench, damaged) == NAK.encode()
    assert await exchange(bench, bytes(5)) == b""
    assert bench.host_requests == bench.register_requests == 0
    await exchange(bench, frame)
    bench.check_same()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def rates_change_after_the_answer_and_fall_back(dut) -> None:
    bench = await begun(dut)
    for number, parts in enumerate((127, 65536, 200, 65535, 128)):
        before = bench.twin.bit_time
        bench.p_stall = 1.0
        request = Frame(number, Operation.SET_RATE, 0, 0, 4, pack_word(parts)).encode()
        bench.twin.receive(request)
        await bench.send(request)
        await bench.cycles(200)
        # Its answer is not on the line yet.
        assert int(dut.bit_time.value) == before
        bench.p_stall = 0.0
        await bench.answered()
        bench.check_same()
    # Good frames keep it, damaged ones do not.
    for _ in range(4):
        await bench.cycles(RATE_TIMEOUT // 2)
        await exchange(bench, Frame(99, Operation.READ, 0, 0, 4).encode())
    bench.check_same()
    for _ in range(8):
        await bench.cycles(RATE_TIMEOUT // 8)
        await exchange(bench, b"\x07\0")
    bench.twin.time_out()
    bench.check_same()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def a_wait_ends_with_the_interrupt_or_the_time(dut) -> None:
    bench = await begun(dut)

    async def wait(number: int, cycles: int) -> int:
        await bench.send(Frame(number, Operation.WAIT, 0, 0, cycles).encode())
        answer = Frame.decode((await bench.answered())[:-1])
        assert (answer.sequence, answer.length) == (number, 0)
        return answer.status

    assert await wait(1, 50) == Status.TIMED_OUT
    waiting = cocotb.start_soon(wait(2, (1 << 24) - 1))
    await bench.cycles(500)
    assert not waiting.done()
    bench.interrupt(True)
    assert await waiting == Status.OK
    assert await wait(3, 0) == Status.OK
    assert await wait(4, 1 << 24) == Status.LENGTH
    bench.interrupt(False)
    # Bytes that come meanwhile do not end it.
    begin = cocotb.utils.get_sim_time("ns")
    waiting = cocotb.start_soon(wait(5, 2000))
    await bench.cycles(500)
    await bench.send(b"\0")
    assert await waiting == Status.TIMED_OUT
    assert cocotb.utils.get_sim_time("ns") - begin > 20_000


async def all_answers(bench: LinkBench, count: int) -> list[bytes]:
    return [await bench.answered() for _ in range(count)]


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def requests_that_come_meanwhile_are_carried_out_in_their_order(dut) -> None:
    bench = await begun(dut)
    chain = [
        Frame(65534, Operation.WRITE, 0, 0, 600, bytes(range(200)) * 3),
        Frame(65535, Operation.WRITE_REGISTER, AFTER, 8, 4, pack_word(7)),
        Frame(0, Operation.WAIT, AFTER, 0, 3000),
        Frame(1, Operation.WRITE, AFTER, 600, 300, bytes(range(150)) * 2),
        Frame(2, Operation.READ, AFTER, 0, MAX_DATA),
        Frame(3, Operation.READ_REGISTER, AFTER, 8, 4),
    ]
    for line, missing in ((True, None), (False, None), (True, 0), (True, 3)):
        bench.interrupt(line)
        await exchange(bench, Frame(9, Operation.IDENTIFY).encode())
        data = b"".join(request.encode() for place, request in enumerate(chain) if place != missing)
        expected = bench.twin.receive(data)
        await bench.send(data)
        assert b"".join(await all_answers(bench, expected.count(0))) == expected
        statuses = [Frame.decode(answer).status for answer in expected.split(b"\0")[:-1]]
        refused = {(True, None): 0, (False, None): 4, (True, 0): 5, (True, 3): 2}[line, missing]
        assert len([status for status in statuses if status]) == refused
        bench.check_same()


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def what_finds_the_queue_full_is_lost_and_no_more(dut) -> None:
    bench = await begun(dut)
    await exchange(bench, Frame(9, Operation.IDENTIFY).encode())
    await bench.send(Frame(1, Operation.WAIT, 0, 0, 30_000).encode())
    await bench.cycles(300)
    write = Frame(2, Operation.WRITE, 0, 0, MAX_DATA, bench.rng.bytes(MAX_DATA)).encode()
    fits = write + Frame(3, Operation.WRITE, AFTER, 5, 900, bench.rng.bytes(900)).encode()
    assert QUEUE_BYTES - 100 < len(fits) <= QUEUE_BYTES
    lost = Frame(4, Operation.WRITE, AFTER, 0, 200, bytes(200)).encode()
    await bench.send(fits + lost)
    answers = await all_answers(bench, 3)
    assert [Frame.decode(answer[:-1]).status for answer in answers] == [Status.TIMED_OUT, Status.OK, Status.OK]
    bench.twin.receive(fits)
    # The client ends what has come of the last one, and repeats it.
    await bench.send(b"\0")
    assert await bench.answered() == NAK.encode()
    await exchange(bench, lost)
    bench.check_same()


def random_request(rng: np.random.Generator, last: Frame | None) -> Frame:
    """Any request, most of them right; the last one again, now and then."""
    if last is not None and rng.random() < 0.2:
        return last
    number = int(rng.integers(1 << 16))
    if last is not None and rng.random() < 0.5:
        number = (last.sequence + int(rng.choice([0, 1, 1, 1, 2]))) % (1 << 16)
    operation = int(rng.integers(0, 11))
    rule = RULES.get(operation)
    length = {
        Operation.IDENTIFY: 0,
        Operation.READ: int(rng.integers(1, 60)),
        Operation.WRITE: int(rng.integers(1, 60)),
        Operation.CHECKSUM: int(rng.integers(1, 100)),
        Operation.WAIT: int(rng.integers(0, 50)),
        Operation.READ_REGISTERS: 4 * int(rng.integers(1, 17)),
    }.get(operation, 4)
    if rng.random() < 0.05:
        # A wait of any length is right, and as long as it says.
        length = int(rng.choice([0, 1, 5, 1025, 1 << 20 if operation != Operation.WAIT else 1 << 24]))
    address = 4 * int(rng.integers(0, 18)) if rng.random() < 0.7 else int(rng.integers(ARENA_BYTES - 40, ARENA_BYTES))
    data = rng.bytes(min(length, 1000)) if rule is not None and rule.has_data else b""
    if operation == Operation.SET_RATE and rng.random() < 0.8:
        data = pack_word(int(rng.integers(100, 70_000)))
    if rng.random() < 0.03:
        data += b"x"
    return Frame(number, operation, int(rng.choice([0, AFTER, 2], p=[0.6, 0.37, 0.03])), address, length, data)


def damaged(rng: np.random.Generator, encoded: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Bytes dropped, doubled, changed, inserted, or without a stop bit; and a delimiter, so that it ends."""
    line, errors = bytearray(encoded), ()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(line)))
        match int(rng.integers(5)):
            case 0:
                del line[at]
            case 1:
                line.insert(at, line[at])
            case 2:
                line[at] = int(rng.integers(256))
            case 3:
                line.insert(at, int(rng.integers(256)))
            case 4:
                errors = (at,)
        if not line:
            break
    line = line.rstrip(b"\0") or bytearray(b"\1")
    return bytes(line) + b"\0", tuple(place for place in errors if place < len(line) and line[place])


def pieces(line: bytes) -> list[bytes]:
    """Frames with their delimiters: each is answered before the next one comes."""
    return [piece + b"\0" for piece in line.split(b"\0")[:-1]]


@cocotb.test(timeout_time=20_000, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.5])
async def whatever_the_line_does_the_twin_does_the_same(dut, p_stall: float) -> None:
    bench = await begun(dut, int(os.environ["SEED"]), p_stall)
    rng, last = bench.rng, None
    answered = 0
    # The twin has no clock: what brings back the initial rate must not happen.
    for _ in range(int(os.environ["FRAMES"]) // 2):
        request = random_request(rng, last)
        bench.interrupt(bool(rng.random() < 0.5))
        if rng.random() < 0.3:
            line, errors = damaged(rng, request.encode())
        else:
            line, errors, last = request.encode(), (), request
        if errors:
            # The twin takes the damage at the frame's end.
            start = line[: errors[0]].rfind(b"\0") + 1
            for piece in pieces(line[:start]):
                answered += bool(await exchange(bench, piece))
            end = line.index(b"\0", errors[0]) + 1
            answered += bool(await exchange(bench, line[start:end], (errors[0] - start,)))
            line = line[end:]
        for piece in pieces(line):
            answered += bool(await exchange(bench, piece))
        bench.twin.bit_time = (
            int(dut.bit_time.value) if request.operation == Operation.SET_RATE else bench.twin.bit_time
        )
        assert bench.arena == bench.twin.arena
        assert bench.writes == bench.twin_writes
    assert answered
    assert zlib.crc32(bench.arena) == zlib.crc32(bench.twin.arena)
