"""Area and timing of one design, as nextpnr reports them, and the comparison with the budget."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .device import Device


class ReportError(RuntimeError):
    """A tool's report is not as expected; the message names the file."""


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path from register to register that limits the clock.

    Attributes
    ----------
    start, end : str
        Cells of the registers.
    logic_ns, routing_ns : float
        Parts of its delay; the first includes the registers' own.
    levels : int
        Cells of logic on it; a carry chain counts once for every pair of bits.
    """

    start: str
    end: str
    logic_ns: float
    routing_ns: float
    levels: int


@dataclass(frozen=True, slots=True)
class Placement:
    """One run of place and route."""

    seed: int
    lut: int
    ff: int
    dsp: int
    bram: int
    fmax_mhz: float
    critical: CriticalPath


@dataclass(frozen=True, slots=True)
class Report:
    """Runs of place and route that differ in their seed.

    Attributes
    ----------
    name : str
        Name of the design.
    device : Device
    harness_ff : int
        Flip-flops of the harness, at most; they are part of ``ff``.
    placements : tuple of Placement
        The runs, in the order of the seeds.
    """

    name: str
    device: Device
    harness_ff: int
    placements: tuple[Placement, ...]

    @property
    def typical(self) -> Placement:
        """The run with the median clock, the lower one of two."""
        ordered = sorted(self.placements, key=lambda run: run.fmax_mhz)
        return ordered[(len(ordered) - 1) // 2]

    @property
    def fmax_mhz(self) -> float:
        """Median clock of the seeds."""
        return statistics.median(run.fmax_mhz for run in self.placements)

    def misses(self) -> list[str]:
        """Return messages of missed budgets; empty if the design fits and is fast enough."""
        misses = [f"{what} must be at most {limit}, not {used}" for what, used, limit in self._area() if used > limit]
        wanted = self.device.fmax_mhz
        if self.fmax_mhz < wanted:
            misses.append(f"clock must be at least {wanted:.1f} MHz, not {self.fmax_mhz:.1f} MHz")
        return misses

    def as_text(self) -> str:
        """Return the report as text."""
        path, seeds = self.typical.critical, ", ".join(f"{run.fmax_mhz:.1f}" for run in self.placements)
        return "\n".join(
            [
                f"{self.name} on {self.device.name}, speed grade {self.device.speed}",
                *(f"{what:<16}{used:>7,} of {limit:,}" for what, used, limit in self._area()),
                f"{'clock':<16}{self.fmax_mhz:>7.1f} MHz, the median of {seeds}",
                f"{'limited by':<16}{path.start} -> {path.end}",
                f"{'':<16}{path.logic_ns:.1f} ns in {path.levels} cells, {path.routing_ns:.1f} ns of wires",
                *self.misses(),
            ]
        )

    def _area(self) -> tuple[tuple[str, int, int], ...]:
        """Yield the resources, with their number and the greatest number."""
        run, device = self.typical, self.device
        return (
            ("look-up tables", run.lut, device.budget_lut),
            ("flip-flops", run.ff, device.ff),
            ("multipliers", run.dsp, device.dsp),
            ("block RAMs", run.bram, device.bram),
        )

    def as_dict(self) -> dict[str, object]:
        """Return the report as values for JSON."""
        run = self.typical
        return {
            "name": self.name,
            "device": self.device.name,
            "speed": self.device.speed,
            "aim_mhz": round(self.device.aim_mhz, 2),
            "lut": run.lut,
            "ff": run.ff,
            "dsp": run.dsp,
            "bram": run.bram,
            "fmax_mhz": round(self.fmax_mhz, 2),
            "fmax_by_seed_mhz": {str(run.seed): round(run.fmax_mhz, 2) for run in self.placements},
            "harness_ff": self.harness_ff,
            "critical_path": asdict(run.critical),
            "misses": self.misses(),
        }


def read_placement(path: Path, *, seed: int, cells: Mapping[str, Mapping[str, int]]) -> Placement:
    """Read the JSON report of nextpnr.

    Parameters
    ----------
    path : Path
    seed : int
        The run's seed.
    cells : mapping of str to mapping of str to int
        Names in the report of the cells that count as ``lut``, ``ff``, ``dsp`` and ``bram``, and as how many.

    Raises
    ------
    ReportError
        If the file is missing or is not such a report.
    """
    try:
        plain = json.loads(path.read_text())
        taken = plain["utilization"]
        used = {name: sum(taken[cell]["used"] * many for cell, many in each.items()) for name, each in cells.items()}
        fmax_mhz = min(clock["achieved"] for clock in plain["fmax"].values())
        paths = [_read_path(entry["path"]) for entry in plain["critical_paths"] if _is_clocked(entry)]
        slowest = max(paths, key=lambda path: path.logic_ns + path.routing_ns)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ReportError(f"{path} must be a report of nextpnr: {error!r}; see the log beside it") from error
    return Placement(seed=seed, fmax_mhz=fmax_mhz, critical=slowest, **used)


def _is_clocked(entry: Mapping[str, str]) -> bool:
    return entry["from"].startswith("posedge") and entry["from"] == entry["to"]


def _read_path(steps: Sequence[Mapping]) -> CriticalPath:
    def total(*kinds: str) -> float:
        return round(sum(step["delay"] for step in steps if step["type"] in kinds), 2)

    return CriticalPath(
        start=steps[0]["from"]["cell"],
        end=steps[-1]["to"]["cell"],
        routing_ns=total("routing"),
        logic_ns=total("clk-to-q", "logic", "setup"),
        levels=sum(step["type"] == "logic" for step in steps),
    )
