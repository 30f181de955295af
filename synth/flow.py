"""Area and timing on open tools: from Amaranth to Verilog, and through a device family's Yosys and nextpnr."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..golden.config import Config
from ..hdl.parts.pipeline import Platform
from ..hdl.parts.verilog import to_verilog
from ..hdl.top_axi import TopAxi
from .device import Device
from .families import DEVICES, family_of
from .report import Placement, Report
from .tools import check_tools

__all__ = ["Harness"]


# A harness that gives any component four pins, so that place and route needs no package with thousands of pins.

#: Inputs of an exclusive-or in one look-up table.
_FAN_IN = 4


class Harness(wiring.Component):
    """Feed a component's inputs from a shift register, and fold its outputs into one bit.

    There is a register before every input and after every output, so that all paths of the component lie between
    registers, and none of its logic is unused.

    Parameters
    ----------
    dut : wiring.Component

    Members
    -------
    shift : In(1)
        Next bit of the shift register.
    folded : Out(1)
        The exclusive-or of all outputs, some cycles late.
    """

    def __init__(self, dut: wiring.Component):
        self.dut = dut
        super().__init__({"shift": In(1), "folded": Out(1)})

    def _ports(self) -> tuple[Value, Value]:
        """Return all inputs and all outputs."""
        members = [(member.flow, Value.cast(value)) for _, member, value in self.dut.signature.flatten(self.dut)]
        inputs, outputs = (Cat(value for flow, value in members if flow is wanted) for wanted in (In, Out))
        return inputs, outputs

    @property
    def flip_flops(self) -> int:
        """Flip-flops of the harness; yosys removes those of unused inputs at the end and of constant outputs."""
        inputs, outputs = self._ports()
        return len(inputs) + sum(_level_widths(len(outputs)))

    def elaborate(self, platform) -> Module:
        """Build the harness."""
        m = Module()
        m.submodules.dut = self.dut
        inputs, outputs = self._ports()

        shifted = Signal(len(inputs), reset_less=True)
        m.d.sync += shifted.eq(Cat(self.shift, shifted))
        m.d.comb += inputs.eq(shifted)

        level = Signal(len(outputs), reset_less=True)
        m.d.sync += level.eq(outputs)
        for width in _level_widths(len(outputs))[1:]:
            folded = Signal(width, reset_less=True)
            m.d.sync += folded.eq(Cat(level[lsb : lsb + _FAN_IN].xor() for lsb in range(0, len(level), _FAN_IN)))
            level = folded
        m.d.comb += self.folded.eq(level)
        return m


def _level_widths(width: int) -> list[int]:
    """Return the registers of each level of the tree that folds ``width`` outputs."""
    widths = [width]
    while widths[-1] > 1:
        widths.append(-(-widths[-1] // _FAN_IN))
    return widths


# A check that a mapped design fits a device, before place and route, which would take long to find out.


def check_fit(netlist: dict[str, Any], device: Device) -> None:
    """Compare the resources of a netlist with those of a device.

    Parameters
    ----------
    netlist : dict
        A flat netlist of the device's family, in the form of Yosys' ``write_json``.
    device : Device

    Raises
    ------
    ValueError
        If it takes more of some resource; the message names all of these.
    """
    area = family_of(device).area(netlist)
    taken = (
        ("look-up tables", area.lut, device.lut),
        ("flip-flops", area.ff, device.ff),
        ("multipliers", area.dsp, device.dsp),
        ("block RAMs", area.bram, device.bram),
    )
    lacking = [f"{what} must be at most {limit:,}, not {used:,}" for what, used, limit in taken if used > limit]
    if lacking:
        raise ValueError(f"{device.name}: {'; '.join(lacking)}; choose a smaller configuration, or a larger device")


Progress = Callable[[str], None]

SEEDS = (1, 2, 3)


def synthesise(
    config: Config,
    *,
    folder: Path,
    device: str = "ecp5-85k",
    speed: int | None = None,
    mhz: float | None = None,
    seeds: Sequence[int] = SEEDS,
    jobs: int = 1,
    progress: Progress = lambda text: None,
) -> Report:
    """Synthesise, place and route the whole core with its AXI ports; for the rest, see :func:`synthesise_component`."""
    # This is before the core is created: Amaranth warns of a component that is never elaborated.
    _checked(device, speed, mhz, seeds)
    return synthesise_component(
        TopAxi(config),
        name="core",
        folder=folder,
        device=device,
        speed=speed,
        mhz=mhz,
        seeds=seeds,
        jobs=jobs,
        progress=progress,
    )


def synthesise_component(
    dut: wiring.Component,
    *,
    name: str,
    folder: Path,
    device: str = "ecp5-85k",
    speed: int | None = None,
    mhz: float | None = None,
    seeds: Sequence[int] = SEEDS,
    jobs: int = 1,
    progress: Progress = lambda text: None,
) -> Report:
    """Synthesise, place and route a component inside a :class:`Harness`.

    Parameters
    ----------
    dut : wiring.Component
    name : str
        The name in the report.
    folder : Path
        The folder of the tools' files and logs; made if necessary.
    device : str
        A key of ``DEVICES``.
    speed : int or None
        The speed grade; by default the slowest.
    mhz : float or None
        The clock to reach; by default the device's.
    seeds : sequence of int
        One run of place and route for each.
    jobs : int
        Parallel runs of place and route; each takes about 1 GB.
    progress : callable
        Called with each step that begins, from several threads if ``jobs`` is above 1.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If there is no such device, speed grade or clock, or no seed.
    FlowError
        If a tool is missing or fails.
    ReportError
        If nextpnr's report is not as expected.
    """
    target = _checked(device, speed, mhz, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    harness = Harness(dut)
    map_design(harness, folder, target, progress)
    placements = _place(folder, target, seeds, jobs, progress)
    return Report(name=name, device=target, harness_ff=harness.flip_flops, placements=placements)


def _place(folder: Path, target: Device, seeds: Sequence[int], jobs: int, progress: Progress) -> tuple[Placement, ...]:
    family = family_of(target)
    constraints = family.harness_constraints(target)

    def place(seed: int) -> Placement:
        progress(f"floorplan, place and route, seed {seed}")
        return family.place(
            folder,
            target,
            seed,
            constraints=constraints,
            is_harness=True,
            is_cancelled=over.is_set,
        )

    over = threading.Event()
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        try:
            return tuple(pool.map(place, seeds))
        finally:
            # After an error or Ctrl-C the pool waits for its threads, which would wait for their tools, for hours.
            over.set()


def map_design(design: wiring.Component, folder: Path, target: Device, progress: Progress) -> None:
    """Write the netlist of :func:`map_cells`: ``top.json`` in ``folder``."""
    mapped = map_cells(design, folder, target, progress)
    (folder / "top.json").write_text(json.dumps(mapped))


def map_cells(design: wiring.Component, folder: Path, target: Device, progress: Progress) -> dict[str, Any]:
    """Return the netlist of the device's cells, as ``write_json`` of Yosys writes it.

    Raises
    ------
    ValueError
        If the design takes more of some resource than the device has.
    FlowError
        If a tool fails.
    """
    progress("elaborate")
    family = family_of(target)
    platform = Platform(primitives=family.primitives(target))
    modules = getattr(design, "sources", ())
    (folder / "top.v").write_text("".join((to_verilog(design, name="top", platform=platform), *modules)))
    progress("synthesise")
    mapped = family.map_cells(folder)
    check_fit(mapped, target)
    return mapped


def find_device(name: str) -> Device:
    """Return the device of a name; ValueError, with the known names, if there is none."""
    if name not in DEVICES:
        raise ValueError(f"device must be one of {', '.join(DEVICES)}, not {name}")
    return DEVICES[name]


def find_target(device: str, speed: int | None, mhz: float | None) -> Device:
    """Return the device of a name, in a speed grade, by default the slowest, and with a clock to reach, by default its
    own; ValueError if there is none."""
    found = find_device(device)
    found = found if speed is None else found.of_speed(speed)
    return found if mhz is None else found.to_reach(mhz)


def _checked(device: str, speed: int | None, mhz: float | None, seeds: Sequence[int]) -> Device:
    found = find_target(device, speed, mhz)
    if not seeds:
        raise ValueError("seeds must be at least one number, not none")
    check_tools(family_of(found).tools)
    return found
