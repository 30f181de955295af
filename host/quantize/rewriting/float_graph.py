"""The float model during rewriting, and the interface of a rewriting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, helper

from ...model.arrays import sample_count
from ...model.model_graph import expose, model_inputs
from ...model.onnx_graph import OnnxGraph, initial_values
from ...model.runtime import plain_session

# The spelling of a normalisation depends on the values that it normalises in the samples.

#: Rows of values by tensor, and by the axes over which it is normalised.
NormalisedRows = Mapping[tuple[str, tuple[int, ...]], npt.NDArray[np.float32]]

#: Number of values that are kept of a tensor, unless single rows of all samples are more.
_MOST = 1 << 16


def normalised_rows(model: onnx.ModelProto, samples: Mapping[str, np.ndarray]) -> NormalisedRows:
    """Run a float model, and return some rows of each tensor that it normalises.

    Parameters
    ----------
    model : ModelProto
        A model whose shapes are known.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.

    Returns
    -------
    mapping of (str, tuple of int) to float32[rows, values]
        Each row is normalised by itself.
    """
    wanted, count = _normalised(model), sample_count(samples)
    if not wanted:
        return {}
    given = {value.name for value in model_inputs(model)}
    names = sorted({name for name, _ in wanted} - given)
    session = plain_session(expose(model, names)) if names else None
    found = defaultdict(list)
    for index in range(count):
        values = {name: array[index : index + 1] for name, array in samples.items()}
        if session is not None:
            values |= dict(zip(names, session.run(names, values), strict=True))
        for name, axes in wanted:
            # Normalised axes are moved to the end.
            rows = values[name].reshape(*values[name].shape[: axes[0]], -1)
            rows = rows.reshape(-1, rows.shape[-1])
            step = max(rows.size * count // _MOST, 1)
            found[name, axes].append(rows[index % min(step, len(rows)) :: step])
    return {key: np.concatenate(parts) for key, parts in found.items()}


def _normalised(model: onnx.ModelProto) -> list[tuple[str, tuple[int, ...]]]:
    """Return tensors that operators normalise, or that a mean may begin to normalise, each with the axes."""
    graph = model.graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info)}
    squares = {node.output[0]: node.input[0] for node in graph.node if node.op_type in ("Mul", "Pow")}
    found: dict[tuple[str, tuple[int, ...]], None] = {}
    for node in graph.node:
        rank = ranks.get(node.input[0], 0) if node.input else 0
        if node.op_type in ("LayerNormalization", "RMSNormalization", "ReduceMean") and rank > 1:
            found[node.input[0], (rank - 1,)] = None
            # This may be the mean of squares with which an RMS normalisation begins.
            if node.op_type == "ReduceMean" and ranks.get(squares.get(node.input[0], "")) == rank:
                found[squares[node.input[0]], (rank - 1,)] = None
        if node.op_type == "InstanceNormalization" and rank > 2:
            found[node.input[0], tuple(range(2, rank))] = None
    return [*found]


@dataclass(frozen=True)
class Rewriting:
    """A way to replace operators without an exact integer form, or without one that the accelerator has, by others with
    one.

    Attributes
    ----------
    title : str
        The operators before and after.
    change : str
        One sentence on differences afterwards, beside the spelling.
    spell : callable
        Function of the graph and a node that returns the nodes in its place, the last of which has the node's output,
        or None to keep the node. It drops later nodes that it replaces as well from the graph
        (:meth:`FloatGraph.drop`).
    operators : tuple of str
        Operators of the nodes that ``spell`` is called for.
    """

    title: str
    change: str
    spell: Callable[[FloatGraph, NodeProto], list[NodeProto] | None]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Mask:
    """A constant that is added to scores, and removes some of them from a softmax.

    Attributes
    ----------
    constant : str
        Its name; elements are zero, or so far below zero that their exponential vanishes.
    scores, total, greatest : str
        Tensors: the scores, their sum with the constant, and the greatest of each row of the sum.
    """

    constant: str
    scores: str
    total: str
    greatest: str


@dataclass(frozen=True)
class Rewritten:
    """A node that was rewritten.

    Attributes
    ----------
    label : str
        Operator and name of the node in the model.
    rewriting : Rewriting
    alike : list of list of str
        Lists of tensors that must have a common scale.
    uncut : dict of str to float
        Constants that cut off values below half a code, and the value of each with which nothing is cut off.
    masks : list of Mask
    """

    label: str
    rewriting: Rewriting
    alike: list[list[str]] = field(default_factory=list)
    uncut: dict[str, float] = field(default_factory=dict)
    masks: list[Mask] = field(default_factory=list)


class FloatGraph(OnnxGraph):
    """A float model with the queries of rewritings.

    Attributes
    ----------
    shapes : dict of str to list of int
        Shapes of tensors; dimensions that are not fixed are 0.
    alike : list of list of str
        Lists of tensors that must have a common scale, filled by rewritings.
    uncut : dict of str to float
        Constants that cut off values, see :class:`Rewritten`, filled by rewritings.
    masks : list of Mask
        Masks that were added, filled by rewritings.
    rows : mapping of (str, tuple of int) to array
        Values of normalised tensors, see :func:`normalised_rows`.
    """

    def __init__(self, model: onnx.ModelProto, rows: NormalisedRows):
        graph = model.graph
        super().__init__(model, graph.node, initial_values(graph))
        self.shapes = {
            value.name: [item.dim_value for item in value.type.tensor_type.shape.dim]
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self._floats = {
            value.name
            for value in (*graph.input, *graph.value_info, *graph.output)
            if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        }
        self.rows = rows
        self.alike: list[list[str]] = []
        self.uncut: dict[str, float] = {}
        self.masks: list[Mask] = []

    def spatial(self, name: str) -> list[int]:
        """Return channels and sizes of a feature map if all are known, else an empty list."""
        shape = self.shapes.get(name, [])
        return shape[1:] if len(shape) in (3, 4) and all(shape[1:]) else []

    def is_float(self, name: str) -> bool:
        """Return whether a computed or given tensor is float32."""
        return name in self._floats

    def maker(self, name: str) -> NodeProto | None:
        """Return the node that computes a tensor, if the tensor has a single reader."""
        return self.producer.get(name) if self.reader(name) is not None else None

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add a constant, float32 where it is a float, and return its unique name."""
        return self.add_constant(name, array.astype(np.float32) if array.dtype.kind == "f" else array)

    def are_constant(self, names: Sequence[str]) -> bool:
        """Return whether all given operands are constants."""
        return all(name in self.constants for name in names if name)


def chained(node: NodeProto, steps: Sequence[tuple[str, Sequence[str], dict[str, object]]]) -> list[NodeProto]:
    """Return a chain of nodes in place of ``node``, from an operator, further operands, and attributes of each."""
    made: list[NodeProto] = []
    for at, (operator, operands, attributes) in enumerate(steps):
        source = made[-1].output[0] if made else node.input[0]
        is_last = at == len(steps) - 1
        output = node.output[0] if is_last else f"{node.output[0]}_{operator}_{at}"
        name = node.name if len(steps) == 1 else f"{node.name}_{operator}_{at}"
        made.append(helper.make_node(operator, [source, *operands], [output], name, **attributes))
    return made


def spelled(node: NodeProto, name: str, steps: Sequence[tuple[str, Sequence[str], str]]) -> list[NodeProto]:
    """Return nodes in place of ``node`` that compute the tensor ``name``.

    Parameters
    ----------
    node : NodeProto
    name : str
    steps : sequence of (str, sequence of str, str)
        Operator, operands, and short name of the result of each, by which later steps read it; the last result is
        ``name``.
    """
    inner = {result for _, _, result in steps}
    made = [
        helper.make_node(
            operator,
            [f"{name}_{operand}" if operand in inner else operand for operand in operands],
            [f"{name}_{result}"],
            f"{node.name}_{result}",
        )
        for operator, operands, result in steps
    ]
    made[-1].output[0] = name
    return made


def depthwise(
    graph: FloatGraph, name: str, weights: np.ndarray, offset: np.ndarray | None = None, **attributes: object
) -> tuple[str, list[str], dict[str, object]]:
    """Return the step of a depthwise convolution.

    Parameters
    ----------
    graph : FloatGraph
    name : str
        Name of a tensor, from which its constants get names.
    weights : array
        Weights float[outputs, *kernel], with the outputs of a channel together.
    offset : array or None
        Bias float[outputs].
    """
    operands = [graph.constant(f"{name}_weights", weights[:, None])]
    if offset is not None:
        operands.append(graph.constant(f"{name}_offset", offset))
    return "Conv", operands, {"kernel_shape": weights.shape[1:], **attributes}
