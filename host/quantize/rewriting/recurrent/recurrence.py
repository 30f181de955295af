"""What an LSTM, GRU or RNN computes: read from the operator, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from ....frontend import ModelError
from ..float_graph import FloatGraph, given
from ..norms.normalisation import Float64

#: Gates of each operator, in the order of its weights, and the functions that it has unless others are given.
_GATES = {"LSTM": "iofc", "GRU": "zrh", "RNN": "h"}
RECURRENT = tuple(_GATES)
_ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
_DIRECTIONS = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}

#: Each step has some ten operators of its own.
_MOST_STEPS = 256


#: A tensor, or values that are known.
Value = str | Float64


@dataclass(frozen=True)
class Direction:
    """One pass over the steps.

    Attributes
    ----------
    is_reverse : bool
        Whether the last step comes first.
    inputs, states : dict of str to float64[hidden, ...]
        Weights of each gate: of what is read, and of the state.
    offsets, state_offsets : dict of str to float64[hidden]
        What is added to either.
    state, cell : float64[hidden] or str
        At the start, as values or as a tensor; zero where it is computed, see :class:`Recurrence`; only an LSTM has a
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
        Steps, elements that each of them reads, elements of the state.
    resets_behind : bool
        Whether a GRU's reset gate multiplies the product with the state, instead of the state: as in PyTorch.
    directions : list of Direction
    starts : dict of str to str
        The tensors of state and cell at the start that are computed, for all directions; empty where they are known.
    """

    operator: str
    steps: int
    inputs: int
    hidden: int
    resets_behind: bool
    directions: list[Direction]
    starts: dict[str, str]


def recurrence(graph: FloatGraph, node: NodeProto) -> Recurrence:
    """Read an LSTM, a GRU or an RNN.

    Raises
    ------
    ModelError
        If it has something that cannot be spelled as operators that are quantised, with what helps.
    """
    steps, _, inputs = graph.shapes[node.input[0]]
    attributes, operands = given(node), [*node.input, *[""] * (8 - len(node.input))]
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
        found.append(Direction(is_reverse, *named, states[0][at], states[1][at]))
    resets_behind = bool(attributes.get("linear_before_reset", 0))
    computed = ["" if name in graph.constants else name for name in operands[5:7]]
    starts = dict(zip(("state", "cell"), computed, strict=True))
    return Recurrence(node.op_type, steps, inputs, hidden, resets_behind, found, starts)


def is_plain(node: NodeProto) -> bool:
    """Whether an operator has the functions that it has unless others are given, and cuts nothing off.

    An RNN may have Relu, which bounds no state: one at an end of a network runs on the host.
    """
    names = [item.decode().lower() for item in given(node).get("activations", ())]
    return {*names} <= {*_ACTIVATIONS[node.op_type]} and "clip" not in given(node)


def _check(graph: FloatGraph, node: NodeProto, steps: int) -> None:
    attributes, label = given(node), f"{node.op_type} '{node.name}'"
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
        # ONNX gives an RNN of one direction two.
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
