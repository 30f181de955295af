"""The transport of software in an SoC: registers, memory and the interrupt's enable at addresses of one bus."""

from __future__ import annotations

from collections.abc import Mapping

from cocotb.handle import HierarchyObject
from cocotbext.axi import AxiLiteBus, AxiLiteMaster

from cocotb_tests.support.transports.cocotb_transport import CocotbTransport

_WORD = 4
#: Bytes in one transfer, which ends within the time for a register.
_CHUNK = 256


class SocTransport(CocotbTransport):
    """An AXI4-Lite master at the pins ``host`` of an SoC, and its pin ``interrupt``.

    Parameters
    ----------
    dut : HierarchyObject
        The SoC, with its clock running.
    places : mapping of str to int
        Addresses: ``registers`` of the accelerator, ``arena`` and ``arena_bytes``.
    """

    def __init__(self, dut: HierarchyObject, places: Mapping[str, int]):
        self._places = places
        self._interrupt, self.clock = dut.interrupt, dut.clk
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "host"), dut.clk, dut.rst)

    @property
    def arena_base(self) -> int:
        """A part of the SDRAM."""
        return self._places["arena"]

    @property
    def arena_bytes(self) -> int:
        """Its size."""
        return self._places["arena_bytes"]

    def read_register(self, address: int) -> int:
        """Over the bus."""
        return super().read_register(self._places["registers"] + address)

    def write_register(self, address: int, value: int) -> None:
        """Over the bus."""
        super().write_register(self._places["registers"] + address, value)

    def read_memory(self, address: int, size: int) -> bytes:
        """Over the bus, word by word."""
        self.check_range(address, size)
        start, end = address - address % _WORD, address + size
        words = b"".join(
            self._access(lambda at=at: self.master.init_read(at, min(_CHUNK, -(-(end - at) // _WORD) * _WORD)), at).data
            for at in range(start, end, _CHUNK)
        )
        return words[address - start :][:size]

    def write_memory(self, address: int, data: bytes) -> None:
        """Over the bus, with strobes for parts of words."""
        self.check_range(address, len(data))
        for at in range(0, len(data), _CHUNK):
            part = bytes(data[at : at + _CHUNK])
            self._access(lambda at=at, part=part: self.master.init_write(address + at, part), address + at)
