"""What a device family has to say of itself, for measurements, for bitstreams and for boards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from ...boards import Board
from ...hdl.parts.pipeline import Primitives
from ..device import Device
from ..netlist import Library
from ..report import Placement

__all__ = ["Area", "Family"]


class Area(NamedTuple):
    """Resources that a mapped netlist takes, or cells of nextpnr's report that count them."""

    lut: int
    ff: int
    dsp: int
    bram: int


class Family(ABC):
    """A device family: its devices, its primitives, and the open tools that map, place, route and pack for it.

    Attributes
    ----------
    name : str
        The key of the family.
    title : str
        The family's name in messages.
    suffix : str
        The end of names of its bitstreams.
    devices : mapping of str to Device
        Devices for measurements, by name.
    library : Library
        The models of its cells.
    tools : tuple of str
        Modules of the tools that it needs beside Yosys.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffix: ClassVar[str]
    devices: Mapping[str, Device]
    library: ClassVar[Library]
    tools: ClassVar[tuple[str, ...]]

    @abstractmethod
    def primitives(self, device: Device) -> Primitives:
        """Return the cells that replace generic bodies on a board with this device."""

    @abstractmethod
    def flags(self, board: Board) -> tuple[str, ...]:
        """Return the options of place and route for a board's FPGA, without the speed grade."""

    @abstractmethod
    def map_cells(self, folder: Path) -> dict[str, Any]:
        """Map ``top.v`` in ``folder`` to the family's cells.

        Returns
        -------
        dict
            A flat netlist in the form of Yosys' ``write_json``, whose module is ``top``.

        Raises
        ------
        FlowError
            If a tool fails.
        """

    @abstractmethod
    def area(self, netlist: Mapping[str, Any]) -> Area:
        """Count what a netlist of :meth:`map_cells` takes, at least: place and route may add to it."""

    @abstractmethod
    def harness_constraints(self, device: Device) -> str:
        """Return the constraints of a harness for measurements, whose pins may be anywhere but for the clock's."""

    @abstractmethod
    def board_constraints(self, board: Board, *, margin: float = 1.0, has_sdram: bool = False) -> str:
        """Return the constraints of a board's top: its pins and its clock.

        Parameters
        ----------
        board : Board
        margin : float
            The factor by which the oscillator's clock is overstated, so that place and route aims at a clock of the
            core that is higher by this factor.
        has_sdram : bool
            Whether the design uses the board's SDRAM.
        """

    @abstractmethod
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
        """Place and route ``top.json`` in ``folder``.

        Parameters
        ----------
        folder : Path
            The folder of the tools' files and logs.
        device : Device
            The device, with the clock to aim at.
        seed : int
        constraints : str
            What :meth:`harness_constraints` or :meth:`board_constraints` returned.
        is_harness : bool
            Whether the design is a harness, of which there will be no bitstream.
        is_cancelled : callable
            Called every second; returns whether the run is cancelled.

        Raises
        ------
        FlowError
            If a tool fails, or the run is cancelled.
        ReportError
            If the report is not as expected.
        """

    @abstractmethod
    def pack(self, folder: Path, device: Device, progress: Callable[[str], None] = lambda text: None) -> bytes:
        """Pack the result of :meth:`place` in ``folder`` into a bitstream.

        Raises
        ------
        FlowError
            If a tool fails, or the bitstream does not say what it was made of.
        """

    @abstractmethod
    def part_of(self, data: bytes) -> int:
        """Return the IDCODE of the FPGA for which a bitstream was made.

        Raises
        ------
        ValueError
            If it is no bitstream of the family, or has no IDCODE.
        """
