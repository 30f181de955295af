"""Bitstreams: build a board's top level, by synthesis, place and route, into the bytes that its FPGA loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from amaranth.lib import wiring

from ..boards import Board
from ..golden.config import Config
from ..hdl.memories.sdram import LEAD_NS, SdramChip
from ..hdl.parts.pll import Pll
from ..hdl.top_board import TopBoard
from . import flow, tools
from .device import MARGIN, Device
from .families import DEVICES, family_of
from .report import Placement


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
        device.to_reach(board.core_mhz * device.headroom),
        name=board.part.name,
        flags=family_of(device).flags(board),
        speed=board.speed,
        budget_lut=device.lut,
    )


def top_of(board: Board, core: wiring.Component) -> TopBoard:
    """Create the board's top with ``core`` in it, which has a serial port, and with the board's SDRAM if the core has
    its arena there."""
    sdram = board.sdram if has_sdram(core) else None
    return TopBoard(
        core,
        Pll(board.oscillator_hz, board.core_hz, lead_ns=LEAD_NS if sdram else 0),
        has_error=board.error is not None,
        inverted=[name for name, pin in board.pins.items() if pin.is_inverted],
        held=[held.level for held in board.held],
        sdram=sdram.outputs if sdram else (),
    )


def chip_of(board: Board, config: Config) -> SdramChip | None:
    """Return the chip that has the arena of a configuration on a board, if it is not on the FPGA."""
    if config.arena.on_chip_bytes or board.sdram is None:
        return None
    return SdramChip(*board.sdram.chip_fields)


def has_sdram(core: wiring.Component) -> bool:
    """Return whether a core with a serial port has its arena in an SDRAM."""
    return "sdram_data_in" in core.signature.members


def build(
    core: wiring.Component,
    board: Board,
    *,
    folder: Path,
    seeds: Sequence[int],
    progress: Callable[[str], None] = lambda text: None,
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

    Raises
    ------
    ValueError
        If there is no seed, or the design does not fit the board's FPGA.
    FlowError
        If a tool is missing or fails, or if the packed bitstream is not what was placed and routed.
    ReportError
        If nextpnr's report is not as expected.
    """
    if not seeds:
        raise ValueError("seeds must be at least one number, not none")
    device = board_device(board)
    family = family_of(device)
    tools.check_tools(family.tools)
    flow.map_design(top_of(board, core), folder, device, progress)
    constraints = family.board_constraints(board, margin=MARGIN, has_sdram=has_sdram(core))
    placements: list[Placement] = []
    for seed in seeds:
        progress(f"floorplan, place and route, seed {seed}, {len(placements) + 1} of at most {len(seeds)} runs")
        placed = family.place(folder, device, seed, constraints=constraints)
        placements.append(placed)
        if placed.fmax_mhz >= device.fmax_mhz:
            return Built(board, device, tuple(placements), family.pack(folder, device, progress))
    return Built(board, device, tuple(placements), b"")
