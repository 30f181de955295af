"""Choice: ways to split the layers of a network among cores that promise the fewest cycles."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.plan import Plan
from .estimate import Estimate
from .split import Parts, Split

#: Neighbouring layers of which the split is changed at once: alone, a layer has to exchange its input and its output.
_RUNS = (1, 2, 3, 5, 8)
_ROUNDS = 4


def choose_parts(network: Plan, executed: Plan) -> list[list[Parts]]:
    """Ways to split all layers, different ones, the most promising first; see :class:`.estimate.Estimate`."""
    estimate, found = Estimate(network, executed), {}
    for first in (Split.ROWS, Split.CHANNELS):
        splits = _improved(estimate, [_nearest(estimate, index, first) for index in range(len(network.graph.layers))])
        found[splits] = estimate.cycles(splits)
    return [
        [estimate.parts(index, split) for index, split in enumerate(splits)]
        for splits in sorted(found, key=found.__getitem__)
    ]


def _nearest(estimate: Estimate, index: int, split: Split) -> Split:
    """A split, if a layer can have it, else none."""
    return split if estimate.parts(index, split) else Split.ONE


def _improved(estimate: Estimate, splits: list[Split]) -> tuple[Split, ...]:
    """Splits of all layers, changed as long as that saves cycles."""
    best = estimate.cycles(splits)
    for _ in range(_ROUNDS):
        before = best
        for trial in _changes(estimate, splits):
            cycles = estimate.cycles(trial)
            if cycles < best:
                splits[:], best = trial, cycles
        if best == before:
            break
    return tuple(splits)


def _changes(estimate: Estimate, splits: list[Split]) -> Iterator[list[Split]]:
    """Other splits of a run of layers, or of all from one on; each on top of what ``splits`` are by then."""
    count = len(splits)
    for start in range(count):
        for stop in sorted({min(start + run, count) for run in _RUNS} | {count}):
            for split in Split:
                changed = [_nearest(estimate, index, split) for index in range(start, stop)]
                if changed != splits[start:stop]:
                    yield [*splits[:start], *changed, *splits[stop:]]
