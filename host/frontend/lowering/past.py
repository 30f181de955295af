"""What a fragment computes beside an operator that moves codes: tables, and what an output depends on."""

from __future__ import annotations

from onnx import NodeProto

from ...graph import Int8
from ..building.checks import table_of
from ..fragments.fragments import Fragment
from ..reading.cut import cut
from ..reading.source import Source


def tabulate_past(source: Source, fragment: Fragment, replacement: NodeProto, end: str) -> Int8:
    """int8[256], from the codes of an input to an output, past what replaces the node with the same result."""
    above, path = {end}, []
    for node in reversed(fragment.nodes):
        if not above & set(node.output):
            continue
        chosen = replacement if set(node.output) & set(replacement.output) else node
        path.append(chosen)
        above |= set(chosen.input)
    start = next(name for name in fragment.inputs if name in above)
    return table_of(cut(source, path[::-1], {start: ["codes"]}, [end]))


def ancestors(source: Source, fragment: Fragment, end: str) -> set[str]:
    """Everything in a fragment that an output depends on."""
    found = {end}
    for node in reversed(fragment.nodes):
        if found & set(node.output):
            found |= set(source.dynamic_inputs(node))
    return found
