"""Partition: a head on the host, a middle on the accelerator, a tail on the host."""

from __future__ import annotations

from ..reading.errors import ModelError
from ..reading.source import Source
from .fragments import PRODUCTS, Fragment, Kind
from .wide import NARROW, wide_tensor


def partition(source: Source, fragments: list[Fragment]) -> list[Fragment]:
    """Choose the fragments that run on the accelerator.

    Fragments that it cannot run belong to the head or the tail; what they need, and what they lead to, runs on
    the host with them. Layout operators at the ends stay with the host.

    Returns
    -------
    list of Fragment
        The middle, in order of execution.

    Raises
    ------
    ModelError
        If a fragment between two layers of the accelerator cannot run there, or nothing can.
    """
    graph = _Order(fragments)
    products = [fragment for fragment in fragments if fragment.kind in PRODUCTS]
    anchors = products or [fragment for fragment in fragments if fragment.kind not in (Kind.LAYOUT, Kind.HOST)]
    host: set[Fragment] = set()
    for fragment in fragments:
        if fragment.kind is not Kind.HOST:
            continue
        before = [anchor for anchor in anchors if anchor in graph.above[fragment]]
        after = [anchor for anchor in anchors if anchor in graph.below[fragment]]
        if before and after:
            raise ModelError(
                f"{source.name}: {fragment.label} between {before[-1].label} and {after[0].label} is not "
                f"supported: {fragment.reason}; {fragment.remedy}"
            )
        host |= {fragment} | (graph.above[fragment] if after else graph.below[fragment])
    middle = [fragment for fragment in fragments if fragment not in host]
    middle = [
        fragment
        for fragment in middle
        if fragment.kind is not Kind.LAYOUT or _leads_to_layer(graph.below[fragment], host)
    ]
    if not any(fragment.kind is not Kind.LAYOUT for fragment in middle):
        reasons = dict.fromkeys(
            f"{fragment.label}: {fragment.reason}" for fragment in fragments if fragment.kind is Kind.HOST
        )
        why = f" ({'; '.join(reasons)})" if reasons else ", as nothing but the layout of codes changes"
        wide = next(filter(None, (wide_tensor(source, fragment) for fragment in fragments)), "")
        raise ModelError(
            f"{source.name}: no layer can run on the accelerator{why}; it needs a quantised convolution, matrix "
            f"product or pointwise operator{wide and f' between tensors of 8 bits, which {wide} is not; {NARROW}'}"
        )
    return middle


def _leads_to_layer(below: set[Fragment], host: set[Fragment]) -> bool:
    return any(fragment.kind is not Kind.LAYOUT and fragment not in host for fragment in below)


class _Order:
    """Everything above and below each fragment."""

    def __init__(self, fragments: list[Fragment]):
        maker = {name: fragment for fragment in fragments for name in fragment.outputs}
        self.above: dict[Fragment, set[Fragment]] = {}
        self.below: dict[Fragment, set[Fragment]] = {fragment: set() for fragment in fragments}
        for fragment in fragments:
            direct = {maker[name] for name in fragment.inputs if name in maker}
            self.above[fragment] = direct.union(*(self.above[other] for other in direct))
            for other in self.above[fragment]:
                self.below[other].add(fragment)
