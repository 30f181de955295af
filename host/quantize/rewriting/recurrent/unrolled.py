"""LSTM, GRU and RNN, one step after the other: products, sums and tables, whose tensors are alike at every step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import NodeProto, helper

from ..float_graph import FloatGraph, Rewriting
from ..norms.normalisation import Float64
from .recurrence import RECURRENT, Direction, Recurrence, Value, is_plain, recurrence
from .row_order import follow, unmoved

#: What has the scale of another tensor, so that all gates are added up, and opened, with the same tables.
_SAME = {
    **{f"{gates}_product": "product" for gates in ("iofc", "zr", "h")},
    # Without a state there is no sum.
    **{f"{gates}_{kind}": "sum" for gates in ("iofc", "zr", "h") for kind in ("rows", "sum")},
    **dict.fromkeys("iofzr", "gate"),
    "reset": "product",
}


class _Writer:
    """Writes the operators of one direction; a tensor is called after its role and its step."""

    def __init__(self, graph: FloatGraph, node: NodeProto, prefix: str, alike: dict[str, list[str]]):
        self.graph, self.prefix, self.label = graph, prefix, node.name
        self.made: list[NodeProto] = []
        self.step = 0
        self._held: dict[str, str] = {}
        self._alike = alike

    def hold(self, role: str, array: np.ndarray) -> str:
        """A constant that all steps have in common."""
        if role not in self._held:
            self._held[role] = self.graph.constant(f"{self.prefix}_{role}", array)
        return self._held[role]

    def node(self, role: str, operator: str, *operands: str, parts: int = 1, **attributes: object) -> list[str]:
        """Compute a tensor, or several parts of one."""
        name = f"{self.prefix}_{role}_{self.step}"
        outputs = [name, *(f"{name}_{part}" for part in range(1, parts))]
        self.made.append(helper.make_node(operator, operands, outputs, f"{self.label}_{name}", **attributes))
        return outputs

    def alike(self, role: str, operator: str, *operands: str, **attributes: object) -> str:
        """Compute a tensor that has one scale at all steps, in both directions, and with others of :data:`_SAME`."""
        (output,) = self.node(role, operator, *operands, **attributes)
        self._alike.setdefault(_SAME.get(role, role), []).append(output)
        return output

    def split(self, role: str, source: str, sizes: list[int]) -> list[str]:
        """Parts along the second axis."""
        held = self.hold(f"{role}_sizes", np.array(sizes, np.int64))
        return self.node(role, "Split", source, held, parts=len(sizes), axis=1) if len(sizes) > 1 else [source]

    def product(self, role: str, state: Value, weights: Float64, offset: Float64) -> Value:
        """``weights @ state + offset``: known, if the state is."""
        if not isinstance(state, str):
            return weights @ state + offset
        operands = [self.hold(f"{role}_states", weights)]
        if offset.any():
            operands.append(self.hold(f"{role}_state_offset", offset))
        return self.alike(f"{role}_product", "Gemm", state, *operands, transB=1)

    def add(self, role: str, value: str, other: Value) -> str:
        """The sum of a tensor and of what may be known."""
        if isinstance(other, str):
            return self.alike(role, "Add", value, other)
        return self.alike(role, "Add", value, self.hold(f"{role}_start", other[None])) if other.any() else value

    def multiply(self, role: str, value: str, other: Value) -> Value:
        """The product of a tensor and of what may be known: known, if that is zero."""
        if isinstance(other, str):
            return self.alike(role, "Mul", value, other)
        return self.alike(role, "Mul", value, self.hold(f"{role}_start", other[None])) if other.any() else other

    def mixed(self, role: str, first: str, second: str, kept: Value) -> str:
        """The sum of a product of two tensors and of what is kept of a state."""
        is_all = not isinstance(kept, str)
        new = self.alike(role if is_all else f"{role}_new", "Mul", first, second)
        return new if is_all else self.alike(role, "Add", new, kept)


def _states(write: _Writer, of: Recurrence, direction: Direction, rows: str) -> tuple[list[str], str]:
    """The state after each step, in the order of the sequence, and the cell after the last one."""
    # What a reset gate multiplies needs its offset before; all other offsets are part of the product with the inputs.
    late = "h" if of.resets_behind and of.operator == "GRU" else ""
    groups = {"LSTM": ["iofc"], "GRU": ["zr", "h"], "RNN": ["h"]}[of.operator]
    projected = {gates: _projection(write, of, direction, rows, gates, with_state=gates != late) for gates in groups}
    state: Value = direction.state
    cell: Value = direction.cell
    found: dict[int, str] = {}

    def product(gates: str, state: Value) -> Value:
        weights, offset = (_stacked(gates, each) for each in (direction.states, direction.state_offsets))
        return write.product(gates, state, weights, offset if gates == late else np.zeros_like(offset))

    def gated(gates: str, inner: Value) -> list[str]:
        total = write.add(f"{gates}_sum", projected[gates][write.step], inner)
        parts = write.split(f"{gates}_part", total, [of.hidden] * len(gates))
        functions = ("Tanh" if gate in "ch" else "Sigmoid" for gate in gates)
        return [write.alike(*each) for each in zip(gates, functions, parts, strict=True)]

    for write.step in range(of.steps)[:: -1 if direction.is_reverse else 1]:
        if of.operator == "RNN":
            total = write.add("h_sum", projected["h"][write.step], product("h", state))
            state = write.alike("state", "Tanh", total)
        elif of.operator == "LSTM":
            inner, out, forget, candidate = gated("iofc", product("iofc", state))
            cell = write.mixed("cell", inner, candidate, write.multiply("kept", forget, cell))
            state = write.alike("state", "Mul", out, write.alike("cell_tanh", "Tanh", cell))
        else:
            update, reset = gated("zr", product("zr", state))
            if of.resets_behind:
                (candidate,) = gated("h", write.multiply("reset", reset, product("h", state)))
            else:
                (candidate,) = gated("h", product("h", write.multiply("reset", reset, state)))
            opened = write.alike("opened", "Sub", write.hold("one", np.ones(())), update)
            state = write.mixed("state", opened, candidate, write.multiply("kept", update, state))
        found[write.step] = state
    return [found[step] for step in range(of.steps)], cell if isinstance(cell, str) else ""


def _stacked(gates: str, of: dict[str, Float64]) -> Float64:
    return np.concatenate([of[gate] for gate in gates])


def _projection(
    write: _Writer, of: Recurrence, direction: Direction, rows: str, gates: str, *, with_state: bool
) -> list[str]:
    """What each step adds that depends on no state: of all steps one product."""
    offset = _stacked(gates, direction.offsets) + (_stacked(gates, direction.state_offsets) if with_state else 0)
    weights = write.hold(f"{gates}_inputs", _stacked(gates, direction.inputs))
    write.step = 0
    product = write.alike(f"{gates}_rows", "Gemm", rows, weights, write.hold(f"{gates}_offset", offset), transB=1)
    size = len(gates) * of.hidden
    shapes = {"map": (1, of.steps, size), "vector": (1, size)}
    held = {role: write.hold(f"{gates}_{role}", np.array(shape, np.int64)) for role, shape in shapes.items()}
    (joined,) = write.node(f"{gates}_map", "Reshape", product, held["map"])
    vectors = []
    for step, part in enumerate(write.split(f"{gates}_row", joined, [1] * of.steps)):
        write.step = step
        vectors += write.node(f"{gates}_vector", "Reshape", part, held["vector"])
    return vectors


def _spell(graph: FloatGraph, node: NodeProto) -> list[NodeProto] | None:
    if node.op_type == "RNN" and not is_plain(node):
        return None
    of = recurrence(graph, node)
    name = node.output[0] or node.name
    source, passed = unmoved(graph, node.input[0])
    shape = graph.constant(f"{name}_row_shape", np.array([of.steps, of.inputs], np.int64))
    made = [helper.make_node("Reshape", [source, shape], [f"{name}_rows"], f"{node.name}_rows")]
    alike: dict[str, list[str]] = {}
    states, last, cells = [], [], []
    starts = {role: _computed_start(graph, node, of, name, role) for role in ("state", "cell")}
    for role, (parts, nodes, moves) in starts.items():
        made += nodes
        passed += moves
        alike.setdefault(role, []).extend(parts)
    for at, each in enumerate(of.directions):
        given = {role: parts[at] for role, (parts, *_) in starts.items() if parts}
        direction, write = replace(each, **given), _Writer(graph, node, f"{name}_{at}", alike)
        found, cell = _states(write, of, direction, f"{name}_rows")
        made += write.made
        states.append(found)
        last.append(found[0 if direction.is_reverse else -1])
        cells.append(cell)
    every = [state for step in zip(*states, strict=True) for state in step]
    for output, rows in zip(node.output, (every, last, cells), strict=False):
        if graph.is_read(output):
            end, order, moves = follow(graph, output, of.hidden)
            made += _joined(graph, node, end, [rows[row] for row in order], alike)
            passed += moves
    for other in passed:
        graph.drop(other)
    graph.alike += alike.values()
    return made


def _computed_start(
    graph: FloatGraph, node: NodeProto, of: Recurrence, name: str, role: str
) -> tuple[list[str], list[NodeProto], list[NodeProto]]:
    """A computed state at the start as a vector for each direction: these, what makes them, and what it replaces."""
    given, count = of.starts[role], len(of.directions)
    if not given:
        return [], [], []
    source, passed = unmoved(graph, given)
    start = f"{name}_{role}_start"
    shape = graph.constant(f"{start}_shape", np.array([1, count * of.hidden], np.int64))
    made = [helper.make_node("Reshape", [source, shape], [start], f"{node.name}_{role}_start")]
    if count == 1:
        return [start], made, passed
    parts = [f"{start}_{at}" for at in range(count)]
    sizes = graph.constant(f"{start}_sizes", np.full(count, of.hidden))
    made.append(helper.make_node("Split", [start, sizes], parts, f"{node.name}_{role}_starts", axis=1))
    return parts, made, passed


def _joined(
    graph: FloatGraph, node: NodeProto, end: str, rows: list[str], alike: dict[str, list[str]]
) -> list[NodeProto]:
    """Rows one after the other, in the shape of the tensor ``end``."""
    made, source = [], rows[0]
    if len(rows) > 1:
        source = f"{end}_joined"
        made.append(helper.make_node("Concat", rows, [source], f"{node.name}_{end}_joined", axis=1))
        next(names for names in alike.values() if rows[0] in names).append(source)
    shape = graph.constant(f"{end}_shape", np.array(graph.shapes[end], np.int64))
    return [*made, helper.make_node("Reshape", [source, shape], [end], f"{node.name}_{end}")]


UNROLLED = Rewriting(
    "LSTM, GRU or RNN as products, sums and tables of each step",
    "State, cell, gates and sums are int8, each with one scale for all steps.",
    _spell,
    RECURRENT,
)
