"""LSTM, GRU and RNN, which ONNX Runtime computes in float, unrolled step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, helper

from ...frontend import ModelError
from ...model.onnx_graph import attributes_of
from .affine import Float64
from .float_graph import FloatGraph, Rewriting

__all__ = [
    "RECURRENT",
    "UNROLLED",
]


#: Gates of each operator, in the order of its weights, and its default functions.
_GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
RECURRENT = tuple(_GATES)
_ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
_DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}

#: Most steps; each has some ten operators.
_MOST_STEPS = 256


#: The name of a tensor, or known values.
Value = str | Float64


@dataclass(frozen=True)
class RecurrentPass:
    """One pass over the steps.

    Attributes
    ----------
    is_reverse : bool
        Whether the last step comes first.
    inputs, states : dict of str to float64[hidden, ...]
        Weights of each gate for the input and for the state.
    offsets, state_offsets : dict of str to float64[hidden]
        Biases of the input's and of the state's product.
    state, cell : float64[hidden] or str
        Initial values, or a tensor of them; zero where they are computed, see :class:`Recurrence`. Only an LSTM has a
        cell.
    """

    is_reverse: bool
    inputs: dict[str, Float64]
    states: dict[str, Float64]
    offsets: dict[str, Float64]
    state_offsets: dict[str, Float64]
    state: Value
    cell: Value


@dataclass(frozen=True)
class Recurrence:
    """An LSTM, a GRU or an RNN over a fixed number of steps, of one sample.

    Attributes
    ----------
    operator : str
    steps, inputs, hidden : int
        Number of steps, of elements that each step reads, and of elements of the state.
    resets_behind : bool
        Whether a GRU's reset gate multiplies the product with the state, instead of the state: as in PyTorch.
    directions : list of RecurrentPass
    starts : dict of str to str
        The computed tensors of initial state and cell, for all directions; empty if they are known.
    """

    operator: str
    steps: int
    inputs: int
    hidden: int
    resets_behind: bool
    directions: list[RecurrentPass]
    starts: dict[str, str]


def recurrence(graph: FloatGraph, node: NodeProto) -> Recurrence:
    """Read an LSTM, a GRU or an RNN.

    Raises
    ------
    ModelError
        If a part of it cannot be spelled with quantised operators; the message has a remedy.
    """
    steps, _, inputs = graph.shapes[node.input[0]]
    attributes, operands = attributes_of(node), [*node.input, *[""] * (8 - len(node.input))]
    _check(graph, node, steps)
    weights, recurrent = (graph.constants[name].astype(np.float64) for name in operands[1:3])
    count, hidden = recurrent.shape[0], recurrent.shape[2]
    gates = _GATES[node.op_type]
    empty = np.zeros((count, 2 * len(gates) * hidden))
    added = graph.constants[operands[3]].astype(np.float64) if operands[3] else empty
    states = [_start(graph, name, (count, hidden)) for name in operands[5:7]]
    found = []
    for at, is_reverse in enumerate(_DIRECTIONS[attributes.get("direction", b"forward").decode()]):
        parts = (weights[at], recurrent[at], *np.split(added[at], 2))
        named = [dict(zip(gates, np.split(part, len(gates)), strict=True)) for part in parts]
        found.append(RecurrentPass(is_reverse, *named, states[0][at], states[1][at]))
    resets_behind = bool(attributes.get("linear_before_reset", 0))
    computed = ["" if name in graph.constants else name for name in operands[5:7]]
    starts = dict(zip(("state", "cell"), computed, strict=True))
    return Recurrence(node.op_type, steps, inputs, hidden, resets_behind, found, starts)


def is_plain(node: NodeProto) -> bool:
    """Return whether an operator has its default functions, and no clip.

    An RNN may have Relu; its state is not bounded, and such an RNN at an end of a network runs on the host.
    """
    names = [item.decode().lower() for item in attributes_of(node).get("activations", ())]
    return {*names} <= {*_ACTIVATIONS[node.op_type]} and "clip" not in attributes_of(node)


def _check(graph: FloatGraph, node: NodeProto, steps: int) -> None:
    attributes, label = attributes_of(node), f"{node.op_type} '{node.name}'"
    operands = [*node.input, *[""] * (8 - len(node.input))]
    names = [item.decode().lower() for item in attributes.get("activations", ())]
    usual = _ACTIVATIONS[node.op_type] * (2 if attributes.get("direction") == b"bidirectional" else 1)
    lengths = graph.constants.get(operands[4], np.full(1, steps if not operands[4] else -1))
    peephole = graph.constants.get(operands[7], np.full(1, 1.0 if operands[7] else 0.0))
    complaints: Sequence[tuple[bool, str]] = (
        (
            not graph.are_constant(operands[1:4]),
            "its weights must be constants, and are computed; export them as they are",
        ),
        (bool((lengths != steps).any()), f"sequence_lens must be {steps} or absent; pad all sequences to one length"),
        (bool(peephole.any()), "peepholes are not supported; train it without"),
        ("clip" in attributes, "clip is not supported; train it without"),
        (bool(attributes.get("input_forget", 0)), "input_forget must be 0; train it with a forget gate of its own"),
        # ONNX gives two functions to an RNN of one direction.
        (
            bool(names) and names[: len(usual)] != usual,
            f"activations must be {', '.join(usual)}, not {', '.join(names)}",
        ),
        (steps > _MOST_STEPS, f"steps must be at most {_MOST_STEPS}, not {steps}; cut or pool the sequence in front"),
    )
    for is_wrong, complaint in complaints:
        if is_wrong:
            raise ModelError(f"{label}: {complaint}")


def _start(graph: FloatGraph, name: str, shape: tuple[int, int]) -> Float64:
    return graph.constants[name].astype(np.float64).reshape(shape) if name in graph.constants else np.zeros(shape)


# Exporters move whole rows around a sequence; moves are followed from a tensor as long as rows stay whole.

Numbers = npt.NDArray[np.int64]

_RESHAPING = ("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


def rows_of(numbers: Numbers, width: int) -> list[int] | None:
    """Return the rows, of ``size`` elements each, of a tensor of numbered elements, in order; None if one is not
    whole."""
    if numbers.size == 0 or numbers.size % width:
        return None
    rows = numbers.reshape(-1, width)
    is_whole = (rows[:, :1] % width == 0).all() and (rows == rows[:, :1] + np.arange(width)).all()
    return [int(first) // width for first in rows[:, 0]] if is_whole else None


def follow(graph: FloatGraph, name: str, width: int) -> tuple[str, list[int], list[NodeProto]]:
    """Follow a tensor through moves as long as its rows stay whole.

    Returns
    -------
    name : str
        Name of the last tensor.
    rows : list of int
        Rows of the first tensor that the last one has.
    passed : list of NodeProto
        The nodes between them.
    """
    shape = graph.shapes[name]
    numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    rows, passed = rows_of(numbers, width) or [], []
    while (reader := graph.reader(name)) is not None:
        moved = _moved(graph, reader, name, numbers)
        found = None if moved is None else rows_of(moved, width)
        if moved is None or found is None:
            break
        numbers, rows, name = moved, found, reader.output[0]
        passed.append(reader)
    return name, rows, passed


def unmoved(graph: FloatGraph, name: str) -> tuple[str, list[NodeProto]]:
    """Return the tensor that has the same elements in the same order, and the nodes in between."""
    passed: list[NodeProto] = []
    while (maker := graph.maker(name)) is not None and graph.shapes.get(maker.input[0]):
        shape = graph.shapes[maker.input[0]]
        numbers = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        moved = _moved(graph, maker, maker.input[0], numbers)
        if moved is None or not np.array_equal(moved.reshape(-1), numbers.reshape(-1)):
            break
        name = maker.input[0]
        passed.append(maker)
    return name, passed


def _moved(graph: FloatGraph, node: NodeProto, name: str, numbers: Numbers) -> Numbers | None:
    """Return the numbered elements of a node's result; None if it does not move elements, or depends on other
    inputs."""
    if (
        node.input[0] != name
        or not graph.are_constant(node.input[1:])
        or not all(graph.shapes.get(node.output[0], [0]))
    ):
        return None
    attributes = attributes_of(node)
    if node.op_type in _RESHAPING:
        return numbers.reshape(graph.shapes[node.output[0]])
    if node.op_type == "Transpose":
        return numbers.transpose(attributes.get("perm", tuple(range(numbers.ndim))[::-1]))
    if node.op_type == "Gather":
        return np.take(numbers, graph.constants[node.input[1]], axis=attributes.get("axis", 0))
    if node.op_type == "Slice":
        bounds = [graph.constants[operand].reshape(-1).tolist() for operand in node.input[1:]]
        starts, ends = bounds[:2]
        axes = bounds[2] if len(bounds) > 2 else range(len(starts))
        strides = bounds[3] if len(bounds) > 3 else [1] * len(starts)
        if min(strides) < 1:
            return None
        for start, end, axis, stride in zip(starts, ends, axes, strides, strict=True):
            numbers = numbers[(*[slice(None)] * (axis % numbers.ndim), slice(start, end, stride))]
        return numbers
    return None


# Steps of LSTM, GRU and RNN are products, sums and tables, whose tensors have the same scales at every step.

#: Tensors that get the scale of another, so that all gates are added up, and opened, with the same tables.
_SAME = {
    **{f"{gates}_product": "product" for gates in ("iofc", "zr", "h")},
    # Without a state there is no sum with its product.
    **{f"{gates}_{kind}": "sum" for gates in ("iofc", "zr", "h") for kind in ("rows", "sum")},
    **dict.fromkeys("iofzr", "gate"),
    "reset": "product",
}


class _Writer:
    """The operators of one direction; a tensor is named after its role and its step."""

    def __init__(self, graph: FloatGraph, node: NodeProto, prefix: str, alike: dict[str, list[str]]):
        self.graph, self.prefix, self.label = graph, prefix, node.name
        self.made: list[NodeProto] = []
        self.step = 0
        self._held: dict[str, str] = {}
        self._alike = alike

    def hold(self, role: str, array: np.ndarray) -> str:
        """Add a constant that all steps share, and return its name."""
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
        """Compute a tensor whose scale is that of all steps, both directions, and the tensors of :data:`_SAME`."""
        (output,) = self.node(role, operator, *operands, **attributes)
        self._alike.setdefault(_SAME.get(role, role), []).append(output)
        return output

    def split(self, role: str, source: str, sizes: list[int]) -> list[str]:
        """Return parts along the second axis."""
        held = self.hold(f"{role}_sizes", np.array(sizes, np.int64))
        return self.node(role, "Split", source, held, parts=len(sizes), axis=1) if len(sizes) > 1 else [source]

    def product(self, role: str, state: Value, weights: Float64, offset: Float64) -> Value:
        """Return ``weights @ state + offset``, as known values if the state is known."""
        if not isinstance(state, str):
            return weights @ state + offset
        operands = [self.hold(f"{role}_states", weights)]
        if offset.any():
            operands.append(self.hold(f"{role}_state_offset", offset))
        return self.alike(f"{role}_product", "Gemm", state, *operands, transB=1)

    def add(self, role: str, value: str, other: Value) -> str:
        """Return the sum of a tensor and a tensor or known values."""
        if isinstance(other, str):
            return self.alike(role, "Add", value, other)
        return self.alike(role, "Add", value, self.hold(f"{role}_start", other[None])) if other.any() else value

    def multiply(self, role: str, value: str, other: Value) -> Value:
        """Return the product of a tensor and a tensor or known values; known, if these are zero."""
        if isinstance(other, str):
            return self.alike(role, "Mul", value, other)
        return self.alike(role, "Mul", value, self.hold(f"{role}_start", other[None])) if other.any() else other

    def mixed(self, role: str, first: str, second: str, kept: Value) -> str:
        """Return the sum of a product of two tensors and of the kept part of a state."""
        is_all = not isinstance(kept, str)
        new = self.alike(role if is_all else f"{role}_new", "Mul", first, second)
        return new if is_all else self.alike(role, "Add", new, kept)


def _states(write: _Writer, of: Recurrence, direction: RecurrentPass, rows: str) -> tuple[list[str], str]:
    """Return the state after each step, in the order of the sequence, and the cell after the last one."""
    # The operand of a reset gate needs its own offset; all other offsets are part of the product with the inputs.
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
    write: _Writer, of: Recurrence, direction: RecurrentPass, rows: str, gates: str, *, with_state: bool
) -> list[str]:
    """Return the addends of all steps that do not depend on the state, from one product."""
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
        if graph.is_output(output) or graph.readers(output):
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
    """Return vectors of a computed initial state for each direction, the nodes that make them, and the replaced
    nodes."""
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
    """Return rows, concatenated, in the shape of the tensor ``end``."""
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
