"""AXI around a component in cocotb: a monitor of its requests, responses that fail, and the register port."""

from __future__ import annotations

from collections.abc import Callable

import cocotb
from cocotb.handle import HierarchyObject
from cocotb.triggers import FallingEdge, ReadOnly, RisingEdge
from cocotbext.axi import AxiLiteMaster, AxiRam, AxiResp

from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.units import ErrorCode, Unit

_PAYLOAD = {
    "aw": ("addr", "id", "len", "size", "burst"),
    "ar": ("addr", "id", "len", "size", "burst"),
    "w": ("data", "strb", "last"),
}


class AxiMonitor:
    """Watch the ports ``prefix`` + "awvalid" and so on, from now on: valid and payload stay until they are taken;
    bursts are whole incrementing ones of at most 16 beats within a page; WLAST stands where AWLEN says.

    Attributes
    ----------
    requests : dict of str to list of tuple
        Taken requests of "aw" and "ar" as (address, beats, identifier).
    strobes : list of int
        Of the taken write beats.
    most_outstanding : int
        Read bursts in flight at most.
    """

    def __init__(self, dut: HierarchyObject, prefix: str, *, data_bytes: int):
        self.requests: dict[str, list[tuple[int, int, int]]] = {"aw": [], "ar": []}
        self.strobes: list[int] = []
        self.most_outstanding = 0
        self._dut = dut
        self._prefix = prefix
        self._data_bytes = data_bytes
        self._beats = 0
        self._lengths: list[int] = []
        self._answered = 0
        cocotb.start_soon(self._watch())

    def _value(self, name: str) -> int:
        return int(getattr(self._dut, self._prefix + name).value)

    async def _watch(self) -> None:
        waiting: dict[str, dict[str, int] | None] = dict.fromkeys(_PAYLOAD)
        outstanding = 0
        while True:
            await FallingEdge(self._dut.clk)
            await ReadOnly()
            if self._dut.rst.value == 1:
                continue
            for channel, names in _PAYLOAD.items():
                if self._value(f"{channel}valid"):
                    payload = {name: self._value(channel + name) for name in names}
                    assert waiting[channel] in (None, payload), (
                        f"{channel} changed from {waiting[channel]} to {payload}"
                    )
                    taken = self._value(f"{channel}ready")
                    waiting[channel] = None if taken else payload
                    if taken:
                        self._take(channel, payload)
                        outstanding += channel == "ar"
                else:
                    assert waiting[channel] is None, f"{channel}valid fell before it was taken"
            self._answered += self._value("bvalid") & self._value("bready")
            outstanding -= self._value("rvalid") & self._value("rready") & self._value("rlast")
            self.most_outstanding = max(self.most_outstanding, outstanding)

    def _take(self, channel: str, payload: dict[str, int]) -> None:
        if channel == "w":
            self.strobes.append(payload["strb"])
            self._beats += 1
            if payload["last"]:
                self._lengths.append(self._beats)
                self._beats = 0
        else:
            beats = payload["len"] + 1
            size = 1 << payload["size"]
            assert size == self._data_bytes
            assert payload["burst"] == 1
            assert beats <= 16
            assert payload["addr"] % size == 0
            assert payload["addr"] % 4096 + beats * size <= 4096, f"{beats} beats at {payload['addr']:#x} cross a page"
            self.requests[channel].append((payload["addr"], beats, payload["id"]))

    @property
    def is_writing(self) -> bool:
        """Whether a write burst is offered, or not answered."""
        return bool(self._value("awvalid")) or self._answered != len(self.requests["aw"])

    def check_ended(self) -> None:
        """Every write burst has got its beats, with WLAST at the end of each."""
        assert [beats for _, beats, _ in self.requests["aw"]] == self._lengths


# Error responses from the memory of cocotbext-axi, which by itself answers everything with OKAY.

#: A response that says that something failed, and the code of the report.
FAILURES = [(AxiResp.SLVERR, ErrorCode.AXI_SLAVE), (AxiResp.DECERR, ErrorCode.AXI_DECODE)]


def answer_reads(ram: AxiRam, response: Callable[[int], int]) -> None:
    """Give each beat the response that ``response`` names for its address on the bus."""
    side, address = ram.read_if, 0
    read, send_beat = side._read, side.r_channel.send

    async def note_address(at: int, length: int) -> bytes:
        nonlocal address
        address = at
        return await read(at, length)

    async def set_response(beat) -> None:
        beat.rresp = response(address)
        await send_beat(beat)

    side._read, side.r_channel.send = note_address, set_response


def answer_writes(ram: AxiRam, response: Callable[[int], int]) -> None:
    """Give the burst that is answered as the n-th, from 0, the response ``response(n)``."""
    channel, count = ram.write_if.b_channel, 0
    send_response = channel.send

    async def set_response(answer) -> None:
        nonlocal count
        answer.bresp = response(count)
        count += 1
        await send_response(answer)

    channel.send = set_response


# The registers of one core or several, in a cocotb test.

Error = tuple[ErrorCode, Unit, int, int]


class RegisterBench:
    """Registers by name; what is derived from it makes ``master``, at the port for them."""

    master: AxiLiteMaster

    def __init__(self, dut: HierarchyObject, config: Config):
        self.dut = dut
        self.config = config
        self.map = registers.register_map(config.cores)

    async def cycles(self, count: int) -> None:
        for _ in range(count):
            await RisingEdge(self.dut.clk)

    async def read(self, name: str, core: int = 0) -> int:
        answer = await self.master.read(self.map[registers.core_name(name, core)].address, 4)
        assert answer.resp == AxiResp.OKAY
        return int.from_bytes(answer.data, "little")

    async def write(self, name: str, value: int, core: int = 0) -> None:
        address = self.map[registers.core_name(name, core)].address
        answer = await self.master.write(address, value.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY

    async def status(self) -> int:
        return await self.read("STATUS")

    async def error(self, core: int = 0) -> Error:
        """(code, unit, index, address) from the registers of a core."""
        word, address = await self.read("ERROR", core), await self.read("ERROR_ADDRESS", core)
        return ErrorCode(word & 0xFF), Unit(word >> 8 & 0xFF), word >> 16, address

    async def reset(self) -> None:
        """A soft reset, to its end."""
        await self.write("CONTROL", registers.CONTROL_RESET)
        await self.reset_is_over()

    async def reset_is_over(self) -> None:
        while await self.status() & registers.STATUS_RESETTING:
            pass
