"""Error responses from the memory of cocotbext-axi, which by itself answers everything with OKAY."""

from __future__ import annotations

from collections.abc import Callable

from cocotbext.axi import AxiRam, AxiResp

from lutterfly.golden.units import ErrorCode

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
