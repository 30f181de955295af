"""The use of each layer's cycles: steps that multiply, steps that do not, and the reasons of waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...golden.timing.issue import issue_steps
from .observe import Observation, Ran

#: Reasons why no step was issued, in the order in which a cycle is charged.
RESULTS, BARRIER, LOADED, STORED, TURNAROUND, REQUANTISER = WAITS = (
    "earlier results",
    "other cores",
    "LOAD or FILL",
    "STORE",
    "command turnaround",
    "requantiser",
)


@dataclass(frozen=True, slots=True)
class Share:
    """The measured cycles of one layer, from the last step of the layer before.

    Attributes
    ----------
    begin, end : int
        The first cycle, and the one after the last.
    steps : int
        Cycles in which the array took a step.
    waits : dict of str to int
        The other cycles, by reason.
    dma : int
        Those of the cycles in which a LOAD, STORE or FILL was in progress, for any layer.
    """

    begin: int
    end: int
    steps: int
    waits: dict[str, int]
    dma: int

    @property
    def cycles(self) -> int:
        """All cycles."""
        return self.end - self.begin


def shares(observation: Observation, layers: Sequence[Sequence[int]]) -> list[Share]:
    """Divide an inference up to its last step among the layers.

    Parameters
    ----------
    observation : Observation
    layers : sequence of sequence of int
        The compute commands of each layer, in order of execution.

    Returns
    -------
    list of Share
        One for each layer. After the last one's end the results are written back and the outputs are stored.
    """
    found, end = [], 0
    before: Ran | None = None
    for commands in layers:
        begin, steps, waits = end, 0, dict.fromkeys(WAITS, 0)
        for ran in (observation.compute[index] for index in commands):
            for reason, cycles in _gap(ran, before, end, observation.dma).items():
                waits[reason] += cycles
            issued = issue_steps(ran.command.fields)
            steps += issued
            waits[REQUANTISER] += ran.issued - ran.begin - issued
            before, end = ran, ran.issued
        found.append(Share(begin, end, steps, waits, _moving(observation.dma, begin, end)))
    return found


def _moving(dma: Sequence[Ran], begin: int, end: int) -> int:
    """Count the cycles from ``begin`` up to ``end`` in which a command of the DMA queue was in progress."""
    cycles, now = 0, begin
    for ran in dma:
        first, after = max(ran.begin, now), min(ran.end, end)
        if first < after:
            cycles, now = cycles + after - first, after
    return cycles


def _gap(ran: Ran, before: Ran | None, start: int, dma: Sequence[Ran]) -> dict[str, int]:
    """Return the cycles from ``start`` to a command's first step, by reason."""
    waits, now = {}, start
    is_dependent = before is not None and (
        ran.command.after or ran.command.fields["engine"] != before.command.fields["engine"]
    )
    if is_dependent:
        # These cycles are independent of the DMA.
        until = min(max(before.end, now), ran.begin)
        waits[RESULTS], now = until - now, until
    if ran.command.waits_for is not None:
        waited_for = dma[ran.command.waits_for]
        until = min(max(waited_for.end, now), ran.begin)
        # A LOAD after a barrier waits for other cores first.
        barriers = [earlier for earlier in dma[: ran.command.waits_for + 1] if earlier.kind == "BARRIER"]
        waits[BARRIER] = _moving(barriers, now, until)
        waits[STORED if waited_for.kind == "STORE" else LOADED] = until - now - waits[BARRIER]
        now = until
    waits[TURNAROUND] = ran.begin - now
    return waits
