"""The float model while it is rewritten, and the contract of a rewriting."""

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

# Values, from the samples, of what a model normalises: how it is spelled depends on them.

#: By a tensor, and the axes over which it is normalised.
NormalisedRows = Mapping[tuple[str, tuple[int, ...]], npt.NDArray[np.float32]]

#: Values of a tensor that are kept, unless single rows of all samples are more.
_MOST = 1 << 16


def normalised_rows(model: onnx.ModelProto, samples: Mapping[str, np.ndarray]) -> NormalisedRows:
    """Run a float model, and keep some rows of each tensor that it normalises.

    Parameters
    ----------
    model : ModelProto
        Its shapes are known.
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
            # The axes are the last ones.
            rows = values[name].reshape(*values[name].shape[: axes[0]], -1)
            rows = rows.reshape(-1, rows.shape[-1])
            step = max(rows.size * count // _MOST, 1)
            found[name, axes].append(rows[index % min(step, len(rows)) :: step])
    return {key: np.concatenate(parts) for key, parts in found.items()}


def _normalised(model: onnx.ModelProto) -> list[tuple[str, tuple[int, ...]]]:
    """Tensors that operators normalise, or that a mean may begin to normalise, each with the axes."""
    graph = model.graph
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info)}
    squares = {node.output[0]: node.input[0] for node in graph.node if node.op_type in ("Mul", "Pow")}
    found: dict[tuple[str, tuple[int, ...]], None] = {}
    for node in graph.node:
        rank = ranks.get(node.input[0], 0) if node.input else 0
        if node.op_type in ("LayerNormalization", "RMSNormalization", "ReduceMean") and rank > 1:
            found[node.input[0], (rank - 1,)] = None
            # The mean of squares with which an RMS normalisation begins.
            if node.op_type == "ReduceMean" and ranks.get(squares.get(node.input[0], "")) == rank:
                found[squares[node.input[0]], (rank - 1,)] = None
        if node.op_type == "InstanceNormalization" and rank > 2:
            found[node.input[0], tuple(range(2, rank))] = None
    return [*found]


@dataclass(frozen=True)
class Rewriting:
    """A way to spell what has no exact integer form, or none that the accelerator knows, as what has one.

    Attributes
    ----------
    title : str
        What it makes of what.
    change : str
        One sentence: what is different afterwards, beside the spelling.
    spell : callable
        From the graph and a node to the nodes in its place, the last of which has the node's output; None leaves the
        node. What it takes along of the nodes behind it, it drops from the graph (:meth:`FloatGraph.drop`).
    operators : tuple of str
        Of the nodes that ``spell`` is asked for.
    """

    title: str
    change: str
    spell: Callable[[FloatGraph, NodeProto], list[NodeProto] | None]
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Mask:
    """A constant that is added to scores, and takes some out of a softmax.

    Attributes
    ----------
    constant : str
        Zero, or so far below it that an exponential is nothing.
    scores, total, greatest : str
        Tensors: what it is added to, their sum, and the greatest of each row of this.
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
        As the model called it.
    rewriting : Rewriting
    alike : list of list of str
        Tensors of which those of a list are to have one scale.
    uncut : dict of str to float
        Constants that cut off what is less than half a code, and the value of each with which nothing is cut off.
    masks : list of Mask
    """

    label: str
    rewriting: Rewriting
    alike: list[list[str]] = field(default_factory=list)
    uncut: dict[str, float] = field(default_factory=dict)
    masks: list[Mask] = field(default_factory=list)


class FloatGraph(OnnxGraph):
    """A float model with what rewritings ask of it.

    Attributes
    ----------
    shapes : dict of str to list of int
        Of tensors; dimensions that are not fixed are 0.
    alike : list of list of str
        Where a rewriting notes which tensors are to have one scale.
    uncut : dict of str to float
        Where it notes which constants cut something off, see :class:`Rewritten`.
    masks : list of Mask
        Where it notes those that were added.
    rows : mapping of (str, tuple of int) to array
        Values of what is normalised, as :func:`~..normalised_rows.normalised_rows` gives them.
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
        """Channels and sizes of a feature map of which all are known, or an empty list."""
        shape = self.shapes.get(name, [])
        return shape[1:] if len(shape) in (3, 4) and all(shape[1:]) else []

    def is_float(self, name: str) -> bool:
        """Whether a tensor that is computed or given is of float32."""
        return name in self._floats

    def maker(self, name: str) -> NodeProto | None:
        """The node that computes a tensor, if nothing else reads it than one node."""
        return self.producer.get(name) if self.reader(name) is not None else None

    def constant(self, name: str, array: np.ndarray) -> str:
        """Add a constant, float32 where it is a float, under a name that nothing has."""
        return self.add_constant(name, array.astype(np.float32) if array.dtype.kind == "f" else array)

    def are_constant(self, names: Sequence[str]) -> bool:
        """Whether all operands that are given are constants."""
        return all(name in self.constants for name in names if name)


def chained(node: NodeProto, steps: Sequence[tuple[str, Sequence[str], dict[str, object]]]) -> list[NodeProto]:
    """Nodes one after the other in place of ``node``: each an operator, its further operands, and its attributes."""
    made: list[NodeProto] = []
    for at, (operator, operands, attributes) in enumerate(steps):
        source = made[-1].output[0] if made else node.input[0]
        is_last = at == len(steps) - 1
        output = node.output[0] if is_last else f"{node.output[0]}_{operator}_{at}"
        name = node.name if len(steps) == 1 else f"{node.name}_{operator}_{at}"
        made.append(helper.make_node(operator, [source, *operands], [output], name, **attributes))
    return made


def spelled(node: NodeProto, name: str, steps: Sequence[tuple[str, Sequence[str], str]]) -> list[NodeProto]:
    """Nodes in place of ``node`` that give the tensor ``name``.

    Parameters
    ----------
    node : NodeProto
    name : str
    steps : sequence of (str, sequence of str, str)
        The operator of each, its operands, and a short name of its result, by which later ones read it; that of the
        last one is ``name``.
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
    """The step of a depthwise convolution.

    Parameters
    ----------
    graph : FloatGraph
    name : str
        Of a tensor, after which its constants are called.
    weights : array
        float[outputs, *kernel]: those of a channel one after the other.
    offset : array or None
        float[outputs].
    """
    operands = [graph.constant(f"{name}_weights", weights[:, None])]
    if offset is not None:
        operands.append(graph.constant(f"{name}_offset", offset))
    return "Conv", operands, {"kernel_shape": weights.shape[1:], **attributes}
