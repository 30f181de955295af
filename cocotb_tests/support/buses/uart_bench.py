"""A client of the link at the pins, on a serial port that nobody here wrote."""

from __future__ import annotations

from cocotb.handle import HierarchyObject
from cocotb.triggers import RisingEdge, Timer, with_timeout
from cocotbext.uart import UartSink, UartSource

from cocotb_tests.support.benches.clocking import start
from lutterfly.golden.link import frames
from lutterfly.golden.link.frames import Frame

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
