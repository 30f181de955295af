"""The module for LiteX: an SoC of LiteX with an SDRAM of LiteDRAM, in which the shipped drivers run networks."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import cocotb
import numpy as np
import onnxruntime
import pytest
from cocotb.clock import Clock
from cocotb.handle import HierarchyObject
from cocotb.task import bridge
from cocotb.triggers import ClockCycles
from cocotbext.axi import AxiLiteBus, AxiLiteMaster
from litedram import modules
from litedram.phy.model import SDRAMPHYModel
from litex.build.generic_platform import Pins
from litex.build.sim import SimPlatform
from litex.gen import LiteXModule
from litex.soc.integration.export import get_csr_json
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import axi
from migen import ClockDomain

from cocotb_tests.support.transports.c_driver import CDriver
from cocotb_tests.support.transports.cocotb_transport import CocotbTransport
from lutterfly.examples import digits
from lutterfly.golden.config import Config
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import compile_model
from lutterfly.host.driver.driver import Driver
from lutterfly.host.experimental.litex_module import add_accelerator
from lutterfly.host.session import InferenceSession

# The transport of software in an SoC: registers, memory and the interrupt's enable at addresses of one bus.

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


CONFIG = PRESETS["tiny"]
CLOCK_HZ = 100e6
MAIN_RAM, REGISTERS = 0x4000_0000, 0x2000_0000
#: Where the arena is in the SDRAM: not at its beginning, where programs are.
ARENA = MAIN_RAM + 0x10_0000
ARENA_BYTES = 1 << 20
#: Memories of boards, their kind, and their data pins.
MEMORIES = {"ULX3S": (modules.MT48LC16M16, "1:1", 16), "ECPIX-5": (modules.MT41K256M16, "1:4", 16)}
#: What Migen writes, and how LiteX's bus is.
WAIVED = "/* verilator lint_off COMBDLY */\n/* verilator lint_off UNOPTFLAT */\n"


class Clocking(LiteXModule):
    """Clock and reset from pins."""

    def __init__(self, platform: SimPlatform):
        self.cd_sys = ClockDomain()
        self.comb += [
            self.cd_sys.clk.eq(platform.request("clk")),
            self.cd_sys.rst.eq(platform.request("rst")),
        ]


def soc_without_memory() -> SoCCore:
    """An SoC without a processor: pins are the master of its bus."""
    host = axi.AXILiteInterface()
    pins = [(name, 0, Pins(1)) for name in ("clk", "rst", "interrupt")]
    platform = SimPlatform("SIM", [*pins, *host.get_ios("host")], name="dut")
    soc = SoCCore(
        platform,
        CLOCK_HZ,
        cpu_type=None,
        bus_standard="axi-lite",
        ident="",
        integrated_sram_size=0,
        with_ctrl=False,
        with_timer=False,
        with_uart=False,
    )
    soc.crg = Clocking(platform)
    soc.comb += host.connect_to_pads(platform.request("host"), mode="slave")
    soc.bus.add_master("host", host)
    return soc


def soc_with(memory: str) -> SoCCore:
    """One with an SDRAM."""
    soc = soc_without_memory()
    kind, rate, pins = MEMORIES[memory]
    module = kind(CLOCK_HZ, rate)
    soc.sdrphy = SDRAMPHYModel(module, data_width=pins, clk_freq=CLOCK_HZ)
    soc.add_sdram("sdram", phy=soc.sdrphy, module=module, origin=MAIN_RAM, l2_cache_size=0)
    return soc


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """LiteX tells every step."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield


def generate(memory: str, config: Config, folder: Path) -> tuple[str, dict[str, int]]:
    """The Verilog of an SoC with the accelerator, and the addresses that its software needs."""
    with quietly():
        soc = soc_with(memory)
        accelerator = add_accelerator(soc, config, folder=folder, origin=REGISTERS)
        soc.comb += soc.platform.request("interrupt").eq(accelerator.ev.irq)
        soc.finalize()
        text = str(soc.platform.get_verilog(soc, name="dut"))
        software = json.loads(get_csr_json(soc.csr_regions, soc.constants, soc.mem_regions))
    assert software["memories"]["lutterfly"]["base"] == REGISTERS
    assert software["memories"]["main_ram"]["base"] == MAIN_RAM
    places = {
        "registers": REGISTERS,
        "arena": ARENA,
        "arena_bytes": ARENA_BYTES,
        "enable": software["csr_registers"]["lutterfly_ev_enable"]["addr"],
    }
    return WAIVED + text + (folder / "lutterfly.v").read_text(), places


@pytest.mark.regress
@pytest.mark.parametrize("memory", ["ULX3S", "ECPIX-5"])
def test_drivers_get_the_bytes_of_onnx_runtime(simulate, tmp_path: Path, memory: str) -> None:
    text, places = generate(memory, CONFIG, tmp_path / "gateware")
    simulate(text, env={"PLACES": json.dumps(places), "FOLDER": str(tmp_path)})


def run_python(transport: SocTransport) -> None:
    """A digit by the session that users have."""
    model = digits.model_path("qop")
    session = InferenceSession(model, config=CONFIG, transport=transport)
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: digits.images()[:1]}
    (found,), (expected,) = session.run(None, feeds), reference.run(None, feeds)
    np.testing.assert_array_equal(found, expected)


def run_c(transport: SocTransport) -> None:
    """Codes by the exported driver; the Python driver over the same hardware gives the same."""
    program = compile_model(digits.model_path("qop").read_bytes(), CONFIG)
    codes = [np.random.default_rng(1).integers(-128, 128, port.onnx_shape, np.int8) for port in program.inputs]
    driver = CDriver(Path(os.environ["FOLDER"]), program, transport)
    assert (driver.open(), driver.load()) == ("OK", "OK")
    found = driver.infer(codes)
    other = Driver(transport, CONFIG)
    other.load(program)
    for mine, theirs in zip(found, other.infer(codes), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@cocotb.test(timeout_time=50, timeout_unit="ms")
@cocotb.parametrize(run=[run_python, run_c])
async def digits_in_an_soc(dut, run) -> None:
    places = json.loads(os.environ["PLACES"])
    Clock(dut.clk, 10, unit="ns").start()
    transport = SocTransport(dut, places)
    dut.rst.value = 1
    await ClockCycles(dut.clk, 4)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 4)
    await transport.master.write(places["enable"], (1).to_bytes(4, "little"))
    await bridge(run)(transport)


def test_an_soc_without_a_memory_is_refused(tmp_path: Path) -> None:
    with quietly(), pytest.raises(ValueError, match="must have an SDRAM on its bus"):
        add_accelerator(soc_without_memory(), CONFIG, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_arena_on_the_chip_is_refused(tmp_path: Path) -> None:
    with quietly(), pytest.raises(ValueError, match=r"on_chip_bytes must be 0, not 16384"):
        add_accelerator(soc_with("ULX3S"), PRESETS["ecp5-25k-on-chip"], folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_litex_it_says_what_installs_it() -> None:
    code = "import sys; sys.modules['litedram'] = None; import lutterfly.host.experimental.litex_module"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "an SoC of LiteX needs litex, litedram, which are not installed; run: " in done.stderr
    assert "[litex]" in done.stderr
