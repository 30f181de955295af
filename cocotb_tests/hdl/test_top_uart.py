# amaranth: UnusedElaboratable=no
"""The whole top at its pins: a client on a serial port that nobody here wrote, and a run of the core behind it."""

from __future__ import annotations

import zlib
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.handle import HierarchyObject
from cocotb.triggers import RisingEdge, Timer, with_timeout
from cocotbext.uart import UartSink, UartSource

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.core_bench import END, PAGE
from lutterfly.boards import BOARDS
from lutterfly.golden import registers
from lutterfly.golden.config_parts import ArenaConfig, ClusterConfig
from lutterfly.golden.link import frames
from lutterfly.golden.link.frames import NAK, Frame, Identity, pack_word, parse_word
from lutterfly.golden.link.operations import LINK_VERSION, MAX_DATA, Operation, Status
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.memories.sdram import SdramChip
from lutterfly.hdl.top_uart import TopUart, generate

# A client of the link at the pins, on a serial port that nobody here wrote.

#: What the hardware is told; the clock of :func:`benches.clocking.start` is so many times as fast, and so is the line.
CLOCK_HZ, TIMES = 10_000_000, 10


class UartBench:
    """``dut`` with pins ``rx`` and ``tx``, and a client that asks.

    Attributes
    ----------
    baud : int
        The client's rate.
    """

    def __init__(self, dut: HierarchyObject):
        self.dut = dut
        self.baud = frames.INITIAL_RATE

    async def begin(self) -> None:
        self.source = UartSource(self.dut.rx, baud=TIMES * self.baud, bits=8)
        self.sink = UartSink(self.dut.tx, baud=TIMES * self.baud, bits=8)
        await start(self.dut, {"rx": 1})

    def use_rate(self, baud: float, *, sends: float | None = None) -> None:
        """Receive at a rate, and send at that or another one."""
        self.baud = baud
        for port, rate in ((self.source, sends or baud), (self.sink, baud)):
            # Their own way to set it calls itself without end (0.1.4).
            port._baud = round(TIMES * rate)
            port._restart()

    async def cycles(self, count: int) -> None:
        await Timer(count * 10, "ns")
        await RisingEdge(self.dut.clk)

    async def send(self, data: bytes) -> None:
        await self.source.write(data)
        await self.source.wait()

    async def answer(self, timeout_us: int = 20_000) -> bytes:
        """What comes up to the next delimiter."""
        answer = bytearray()
        while not answer.endswith(b"\0"):
            answer += await with_timeout(self.sink.read(1), timeout_us, "us")
        return bytes(answer)

    async def is_silent(self, bytes_long: int = 40) -> bool:
        """Whether nothing comes for the time of so many bytes."""
        await Timer(round(bytes_long * 10 * 1e9 / (TIMES * self.baud)), "ns")
        return self.sink.empty()

    async def ask(self, request: Frame) -> Frame:
        await self.send(request.encode())
        return Frame.decode((await self.answer())[:-1])


ARENA_BYTES = 16 << 10
CONFIG = replace(PRESETS["tiny"], arena=ArenaConfig(on_chip_bytes=ARENA_BYTES))
#: A second would take a while; this is longer than any frame.
RATE_TIMEOUT = 200_000
FAST = 1_000_000


@pytest.mark.regress
@pytest.mark.verilator
def test_top(simulate) -> None:
    simulate(TopUart(CONFIG, CLOCK_HZ, rate_timeout=RATE_TIMEOUT))


def test_a_configuration_without_an_arena_is_refused() -> None:
    with pytest.raises(ValueError, match=r"on_chip_bytes must be at least 4096, not 0: .* -on-chip"):
        TopUart(PRESETS["tiny"], CLOCK_HZ)


def test_an_arena_is_in_one_place_and_an_sdram_has_one_core() -> None:
    chip = SdramChip(*BOARDS["ulx3s-85f"].sdram.chip_fields)
    with pytest.raises(ValueError, match=rf"^on_chip_bytes must be 0 with an arena in SDRAM, not {ARENA_BYTES}$"):
        TopUart(CONFIG, CLOCK_HZ, sdram=chip)
    with pytest.raises(ValueError, match=r"^cores must be 1 with an arena in SDRAM, not 2$"):
        TopUart(replace(PRESETS["tiny"], cluster=ClusterConfig(cores=2)), CLOCK_HZ, sdram=chip)


@pytest.mark.parametrize("clock_hz", [900_000, 500_000_000])
def test_a_clock_that_is_out_of_range_is_refused(clock_hz: int) -> None:
    with pytest.raises(ValueError, match="rate must be between"):
        TopUart(CONFIG, clock_hz)


@pytest.mark.regress
def test_the_verilog_is_one_module_with_few_pins() -> None:
    text = generate(CONFIG, 25_000_000)
    assert f"configuration hash {CONFIG.hash:#010x}" in text
    (ports,) = [line for line in text.splitlines() if line.startswith("module lutterfly(")]
    assert set(ports.removeprefix("module lutterfly(").removesuffix(");").split(", ")) == {
        *("clk", "rst", "rx", "tx", "busy", "error")
    }


class Client(UartBench):
    """A client that counts its requests."""

    number = 0

    async def do(self, operation: Operation, address: int = 0, length: int = 0, data: bytes = b"") -> Frame:
        self.number = (self.number + 1) & 0xFFFF
        answer = await self.ask(Frame(self.number, operation, 0, address, length, data))
        assert (answer.sequence, answer.operation, answer.address) == (self.number, operation, address)
        assert answer.length == len(answer.data)
        return answer

    async def okay(self, *request) -> bytes:
        answer = await self.do(*request)
        assert answer.status == Status.OK
        return answer.data

    async def read_register(self, name: str) -> int:
        return parse_word(await self.okay(Operation.READ_REGISTER, registers.REGISTERS[name].address, 4))

    async def write_register(self, name: str, value: int) -> None:
        await self.okay(Operation.WRITE_REGISTER, registers.REGISTERS[name].address, 4, pack_word(value))

    async def go_fast(self, baud: int = FAST) -> None:
        await self.okay(Operation.SET_RATE, 0, 4, pack_word(frames.bit_time(CLOCK_HZ, baud)))
        self.use_rate(baud)


async def begun(dut, *, fast: bool = True) -> Client:
    client = Client(dut)
    await client.begin()
    if fast:
        await client.go_fast()
    return client


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def who_is_there_at_the_initial_rate(dut) -> None:
    client = await begun(dut, fast=False)
    first = Identity.parse(await client.okay(Operation.IDENTIFY))
    begin = cocotb.utils.get_sim_time("ns")
    second = Identity.parse(await client.okay(Operation.IDENTIFY))
    assert first == Identity(LINK_VERSION, CLOCK_HZ, ARENA_BYTES, MAX_DATA, first.cycles)
    # Two answers and the time between them tell the clock.
    taken = cocotb.utils.get_sim_time("ns") - begin
    assert second.cycles - first.cycles == pytest.approx(taken / 10, rel=0.01)
    assert await client.read_register("CONFIG_HASH") == CONFIG.hash


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def registers_and_arena(dut) -> None:
    client = await begun(dut)
    assert await client.read_register("ID") == registers.ID
    await client.write_register("WATCHDOG", 0x1234)
    assert await client.read_register("WATCHDOG") == 0x1234
    for name, operation, data in (
        ("ID", Operation.WRITE_REGISTER, pack_word(1)),
        ("CONTROL", Operation.READ_REGISTER, b""),
    ):
        answer = await client.do(operation, registers.REGISTERS[name].address, 4, data)
        assert answer.status == Status.REGISTER_REFUSED
    rng = np.random.default_rng(1)
    contents = rng.bytes(3 * MAX_DATA)
    for at in range(0, len(contents), MAX_DATA):
        await client.okay(Operation.WRITE, 13 + at, MAX_DATA, contents[at : at + MAX_DATA])
    assert await client.okay(Operation.READ, 13 + MAX_DATA, MAX_DATA) == contents[MAX_DATA : 2 * MAX_DATA]
    checksum = await client.okay(Operation.CHECKSUM, 13, len(contents))
    assert parse_word(checksum) == zlib.crc32(contents)
    for address, status in ((ARENA_BYTES - 4, Status.OK), (ARENA_BYTES - 3, Status.ADDRESS)):
        assert (await client.do(Operation.READ, address, 4)).status == status


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def a_run_from_the_arena(dut) -> None:
    client = await begun(dut)
    page = END * (PAGE // len(END))
    for at in (PAGE, 3 * PAGE):
        await client.okay(Operation.WRITE, at, 256, page[:256])
    for queue, at in (("DMA", PAGE), ("COMPUTE", 3 * PAGE)):
        await client.write_register(f"{queue}_PROGRAM", at)
        await client.write_register(f"{queue}_COMMANDS", 1)
    await client.write_register("INTERRUPT_ENABLE", 1)
    assert (await client.do(Operation.WAIT, 0, 10)).status == Status.TIMED_OUT
    await client.write_register("CONTROL", registers.CONTROL_START)
    await client.okay(Operation.WAIT, 0, 100_000)
    assert await client.read_register("STATUS") == registers.STATUS_DONE
    assert (int(dut.busy.value), int(dut.error.value)) == (0, 0)
    # What lies beyond the end is an error of the bus, and the core's.
    await client.write_register("DMA_PROGRAM", 2 * ARENA_BYTES)
    await client.write_register("CONTROL", registers.CONTROL_START)
    await client.cycles(2000)
    assert await client.read_register("STATUS") == registers.STATUS_ERROR
    assert int(dut.error.value) == 1


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def busy_is_what_status_says(dut) -> None:
    client = await begun(dut)
    seen = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.busy)
            seen.append(cocotb.utils.get_sim_time("ns"))

    cocotb.start_soon(watch())
    await client.okay(Operation.WRITE, PAGE, 64, END * (64 // len(END)))
    for queue in ("DMA", "COMPUTE"):
        await client.write_register(f"{queue}_PROGRAM", PAGE)
        await client.write_register(f"{queue}_COMMANDS", 1)
    assert seen == []
    await client.write_register("CONTROL", registers.CONTROL_START)
    await client.cycles(1000)
    assert len(seen) == 1
    assert int(dut.busy.value) == 0


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def a_repeated_request_is_carried_out_once(dut) -> None:
    client = await begun(dut)
    address = registers.REGISTERS["WATCHDOG"].address
    first = Frame(900, Operation.WRITE_REGISTER, 0, address, 4, pack_word(5))
    assert (await client.ask(first)).status == Status.OK
    assert (await client.ask(replace(first, data=pack_word(6)))).status == Status.SEQUENCE
    assert await client.read_register("WATCHDOG") == 5
    write = Frame(901, Operation.WRITE, 0, 0, 1, b"a")
    assert (await client.ask(write)).status == Status.OK
    assert (await client.ask(replace(write, sequence=902, data=b"b"))).status == Status.OK
    assert (await client.ask(replace(write, sequence=902, data=b"b"))).status == Status.OK
    assert await client.okay(Operation.READ, 0, 1) == b"b"


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def rates_up_to_the_fastest_and_back_by_the_time_limit(dut) -> None:
    client = await begun(dut, fast=False)
    for baud in (1_000_000, 1_250_000, 230_400):
        await client.go_fast(baud)
        assert await client.read_register("ID") == registers.ID
    await client.go_fast()
    await client.cycles(RATE_TIMEOUT // 2)
    assert await client.read_register("ID") == registers.ID
    await client.cycles(RATE_TIMEOUT + 1000)
    client.use_rate(frames.INITIAL_RATE)
    assert await client.read_register("ID") == registers.ID
    for parts in (frames.LEAST_BIT_TIME - 1, frames.MOST_BIT_TIME + 1):
        assert (await client.do(Operation.SET_RATE, 0, 4, pack_word(parts))).status == Status.RATE


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def a_rate_that_is_off_by_two_percent_is_understood(dut) -> None:
    client = await begun(dut, fast=False)
    for baud in (230_400, 921_600):
        await client.go_fast(baud)
        for percent in (-2, 2):
            client.use_rate(baud, sends=baud * (1 + percent / 100))
            assert await client.okay(Operation.WRITE, 0, 64, bytes(range(192, 256))) == b""
            assert await client.okay(Operation.READ, 0, 64) == bytes(range(192, 256))
        client.use_rate(baud)


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def damaged_frames_do_nothing_and_the_next_one_is_answered(dut) -> None:
    client = await begun(dut)
    frame = Frame(5, Operation.WRITE, 0, 64, 4, b"abcd").encode()
    await client.okay(Operation.WRITE, 64, 4, b"wxyz")
    for place in range(0, len(frame) - 1, 3):
        for damaged in (
            frame[:place] + frame[place + 1 :],
            frame[:place] + frame[place : place + 1] + frame[place:],
            frame[:place] + bytes([frame[place] ^ 0x81 or 1]) + frame[place + 1 :],
        ):
            await client.send(damaged)
            assert await client.answer() == NAK.encode()
    assert await client.okay(Operation.READ, 64, 4) == b"wxyz"
    await client.send(bytes(4))
    assert await client.is_silent()
    # A break on the line: a byte without a stop bit.
    dut.rx.value = 0
    await client.cycles(20 * CLOCK_HZ // FAST)
    dut.rx.value = 1
    await client.cycles(20 * CLOCK_HZ // FAST)
    await client.send(b"\0")
    assert await client.answer() == NAK.encode()
    # A glitch is no start bit.
    dut.rx.value = 0
    await client.cycles(3)
    dut.rx.value = 1
    await client.cycles(20 * CLOCK_HZ // FAST)
    await client.send(b"\0")
    assert await client.is_silent()
    assert await client.read_register("ID") == registers.ID


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def a_client_that_dies_leaves_no_trace(dut) -> None:
    client = await begun(dut)
    await client.okay(Operation.WRITE, 0, 2, b"ab")
    frame = Frame(7, Operation.WRITE, 0, 0, 2, b"cd").encode()
    await client.send(frame[:-3])
    # The next one begins with a delimiter, as every client should.
    await client.send(b"\0")
    assert await client.answer() == NAK.encode()
    assert (await client.do(Operation.IDENTIFY)).status == Status.OK
    assert await client.okay(Operation.READ, 0, 2) == b"ab"
