# amaranth: UnusedElaboratable=no
"""Commands on their way to units: each at its own unit, as it is, until that takes it."""

from __future__ import annotations

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from cocotb_tests.support.benches.clocking import start
from cocotb_tests.support.benches.streams import receive
from cocotb_tests.support.tiers import sweep
from lutterfly.golden import isa
from lutterfly.golden.isa import Opcode
from lutterfly.golden.units import Queue
from lutterfly.hdl.control.queue import Dispatch, offers

PORTS = {
    Opcode.LOAD: "load",
    Opcode.FILL: "load",
    Opcode.STORE: "store",
    Opcode.BARRIER: "barrier",
    Opcode.COMPUTE: "compute",
}


@pytest.mark.parametrize("cores", sweep([1, 2], kept=[2]))
@pytest.mark.parametrize("queue", Queue, ids=lambda queue: queue.name)
def test_dispatch(simulate, queue: Queue, cores: int) -> None:
    simulate(Dispatch(queue, cores), env={"QUEUE": queue.name, "CORES": str(cores)})


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(p_stall=[0.0, 0.7])
async def every_command_reaches_its_unit(dut, p_stall: float) -> None:
    rng, queue, cores = np.random.default_rng(5), Queue[os.environ["QUEUE"]], int(os.environ["CORES"])
    ports = offers(queue, cores)
    shapes = {name: member.signature.members["payload"].shape for name, member in ports.items()}
    await start(dut, {"command": 0, "index": 0, "offer": 0} | {f"{name}__ready": 0 for name in ports})
    opcodes = [opcode for opcode in isa.opcodes(queue, cores) if opcode in PORTS]
    for index in range(60):
        opcode = opcodes[rng.integers(len(opcodes))]
        fmt, name = isa.FORMATS[opcode], PORTS[opcode]
        values = {field.name: int(rng.integers(*field.limits, endpoint=True)) for field in fmt.fields}
        dut.command.value = int.from_bytes(fmt.encode(**values), "little")
        dut.index.value, dut.offer.value = index, 1
        await RisingEdge(dut.clk)
        # What comes next must not be seen.
        dut.index.value, dut.offer.value = index + 1, 0
        (found,) = await receive(dut.clk, dut, name, 1, rng, p_stall, shape=shapes[name])
        if name == "load":
            assert found["is_fill"] == (opcode is Opcode.FILL)
            found = found["fill" if found["is_fill"] else "load"]
        wanted = {field.name: values[field.name] for field in fmt.fields if field.lsb >= 32}
        assert found == {"index": index, "after": values["after"], **wanted}
        await RisingEdge(dut.clk)
        assert not any(int(getattr(dut, f"{other}__valid").value) for other in ports)
