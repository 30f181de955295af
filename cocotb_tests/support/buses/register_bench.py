"""The registers of one core or several, in a cocotb test."""

from __future__ import annotations

from cocotb.handle import HierarchyObject
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteMaster, AxiResp

from lutterfly.golden import registers
from lutterfly.golden.config import Config
from lutterfly.golden.units import ErrorCode, Unit

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
