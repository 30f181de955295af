"""Partition: a head on the host, a middle on the accelerator, a tail on the host."""

from __future__ import annotations

from .errors import ModelError
from .source import Source
from .units import Kind, Unit


def partition(source: Source, units: list[Unit]) -> list[Unit]:
    """Choose the units that run on the accelerator.

    Units that it cannot run belong to the head or the tail; whatever they need before, or lead to behind, runs on the
    host with them. Layout operators at the ends stay with the host.

    Returns
    -------
    list of Unit
        The middle, in order of execution.

    Raises
    ------
    ModelError
        If a unit between two layers of the accelerator cannot run there, or nothing can.
    """
    graph = _Order(units)
    products = [unit for unit in units if unit.kind is Kind.LINEAR]
    anchors = products or [unit for unit in units if unit.kind not in (Kind.LAYOUT, Kind.HOST)]
    host: set[Unit] = set()
    for unit in units:
        if unit.kind is not Kind.HOST:
            continue
        before = [anchor for anchor in anchors if anchor in graph.above[unit]]
        behind = [anchor for anchor in anchors if anchor in graph.below[unit]]
        if before and behind:
            raise ModelError(
                f"{source.name}: {unit.label} between {before[-1].label} and {behind[0].label} is not "
                f"supported: {unit.reason}; {unit.remedy}"
            )
        host |= {unit} | (graph.above[unit] if behind else graph.below[unit])
    middle = [unit for unit in units if unit not in host]
    middle = [unit for unit in middle if unit.kind is not Kind.LAYOUT or _leads_to_layer(graph.below[unit], host)]
    if not any(unit.kind is not Kind.LAYOUT for unit in middle):
        reasons = "; ".join(dict.fromkeys(f"{unit.label}: {unit.reason}" for unit in units if unit.kind is Kind.HOST))
        raise ModelError(
            f"{source.name}: no layer can run on the accelerator ({reasons}); it needs a quantised "
            "convolution, matrix product or "
            "pointwise operator"
        )
    return middle


def _leads_to_layer(below: set[Unit], host: set[Unit]) -> bool:
    return any(unit.kind is not Kind.LAYOUT and unit not in host for unit in below)


class _Order:
    """Everything above and below each unit."""

    def __init__(self, units: list[Unit]):
        maker = {name: unit for unit in units for name in unit.outputs}
        self.above: dict[Unit, set[Unit]] = {}
        self.below: dict[Unit, set[Unit]] = {unit: set() for unit in units}
        for unit in units:
            direct = {maker[name] for name in unit.inputs if name in maker}
            self.above[unit] = direct.union(*(self.above[other] for other in direct))
            for other in self.above[unit]:
                self.below[other].add(unit)
