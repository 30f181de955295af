"""What operators that move elements make of a tensor that says where each comes from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from ..fragments.fragments import label
from ..reading.errors import UnsupportedError
from ..reading.source import Source
from .build import attributes, permutation_of

Elements = npt.NDArray[np.int64]

_PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


def moved_by(source: Source, node: NodeProto, elements: Elements) -> list[Elements]:
    """What an operator that moves elements makes of them: each of its outputs.

    Raises
    ------
    UnsupportedError
        If what says how is no constant.
    """
    given, operator = attributes(node), node.op_type
    constants = [source.constants.get(name) for name in node.input[1:]]
    if any(name and value is None for name, value in zip(node.input[1:], constants, strict=True)):
        raise UnsupportedError(f"what {label(node)} moves where must be constant")
    if operator == "Transpose":
        return [elements.transpose(permutation_of(node, elements.ndim))]
    if operator == "Gather":
        return [elements.take(constants[0].astype(np.int64), axis=given.get("axis", 0))]
    if operator == "GatherND" and not given.get("batch_dims", 0):
        return [elements[tuple(np.moveaxis(constants[0], -1, 0))]]
    if operator == "Split":
        sizes = [source.shapes[name][given.get("axis", 0)] for name in node.output]
        return np.split(elements, np.cumsum(sizes)[:-1], axis=given.get("axis", 0))
    if operator == "Slice":
        return [elements[_taken(given, constants, elements.ndim)]]
    if operator == "Pad":
        return [_padded(given, constants, elements, label(node))]
    return [elements.reshape(source.shapes[node.output[0]])]


def _taken(given: dict[str, object], constants: list[np.ndarray | None], rank: int) -> tuple[slice, ...]:
    names = ("starts", "ends", "axes", "steps")
    bounds = {name: given.get(name) for name in names}
    bounds |= {name: value.tolist() for name, value in zip(names, constants, strict=False) if value is not None}
    count = len(bounds["starts"])
    axes, steps = bounds["axes"] or range(count), bounds["steps"] or [1] * count
    taken = [slice(None)] * rank
    for axis, start, end, step in zip(axes, bounds["starts"], bounds["ends"], steps, strict=True):
        taken[axis] = slice(start, end, step)
    return tuple(taken)


def _padded(given: dict[str, object], constants: list[np.ndarray | None], elements: Elements, name: str) -> Elements:
    mode, rank = given.get("mode", b"constant").decode(), elements.ndim
    pads = constants[0].tolist() if constants else given["pads"]
    axes = range(rank) if len(constants) < 3 or constants[2] is None else constants[2].tolist()
    widths = np.zeros((rank, 2), np.int64)
    for at, axis in enumerate(axes):
        widths[axis] = pads[at], pads[len(axes) + at]
    kept = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for (before, after), size in zip(widths, elements.shape, strict=True)
    )
    if mode not in _PAD_MODES:
        raise UnsupportedError(f"{name} pads with mode {mode}", f"pad with one of {', '.join(_PAD_MODES)}")
    fill = {"constant_values": -1} if mode == "constant" else {}
    return np.pad(elements[kept], np.maximum(widths, 0), _PAD_MODES[mode], **fill)
