"""Ranges of tensors: common ones of several tensors, bounded ones of attention masks, and ranges around 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from ..model.arrays import sample_count
from ..model.model_graph import computed_tensors, expose
from ..model.onnx_graph import OnnxGraph, set_values
from ..model.runtime import plain_session
from .rewriting import Mask
from .rewriting.softmax import LEAST


def common_ranges(
    model: onnx.ModelProto, samples: Mapping[str, np.ndarray], groups: Sequence[Sequence[str]]
) -> dict[str, list[dict[str, Any]]]:
    """Return, as an override for each tensor of a group, the range of all tensors of the group together.

    Parameters
    ----------
    model : ModelProto
        A float model.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    groups : sequence of sequence of str
        Tensors of the model; names that it lacks are ignored.
    """
    known = set(computed_tensors(model))
    present = [[name for name in group if name in known] for group in groups]
    names = [name for group in present for name in group]
    if not names:
        return {}
    ends = ranges(model, samples, names)
    found = {}
    for group in filter(None, present):
        least, greatest = zip(*(ends[name] for name in group), strict=True)
        found |= {name: range_override(min(least), max(greatest)) for name in group}
    return found


def ranges(
    model: onnx.ModelProto, samples: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest value of tensors of a float model for samples."""
    session = plain_session(expose(model, names))
    least, greatest = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    for index in range(sample_count(samples)):
        feeds = {name: array[index : index + 1] for name, array in samples.items()}
        for name, values in zip(names, session.run(names, feeds), strict=True):
            least[name], greatest[name] = min(least[name], values.min()), max(greatest[name], values.max())
    return {name: (float(least[name]), float(greatest[name])) for name in names}


def range_override(least: float, greatest: float) -> list[dict[str, Any]]:
    """Return a range in the form of an override of onnxruntime.quantization."""
    return [{"rmin": np.array(least, np.float32), "rmax": np.array(greatest, np.float32)}]


def cut_outputs(model: onnx.ModelProto) -> list[str]:
    """Return outputs whose only reader is a Relu or Clip; onnxruntime.quantization gives them the range after it.

    The values that are cut would not matter if the tensors were not outputs: a sum would lack its negative values.
    """
    graph = OnnxGraph(model, model.graph.node, {})
    readers = {name: [node.op_type for node in graph.readers(name)] for name in graph.outputs}
    return [name for name, operators in readers.items() if operators in (["Relu"], ["Clip"])]


# Masks of attention are brought into the range of the scores that they are added to.

#: Additional share of a range, as its ends are rounded to codes.
_MARGIN = 1 / 64


def bound_masks(
    model: onnx.ModelProto, samples: Mapping[str, np.ndarray], masks: Sequence[Mask]
) -> dict[str, list[dict[str, Any]]]:
    """Raise the values of masks as far as they still remove scores; return the ranges of the sums, as overrides.

    -1e9 and minus infinity would leave no codes for the scores. A softmax in int8 rounds a term to 0 that is ln(512)
    below the greatest of its row, so that no sum needs to be lower.

    Parameters
    ----------
    model : ModelProto
        A float model, whose constants are changed.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    masks : sequence of Mask
    """
    if not masks:
        return {}
    known = ranges(model, samples, [name for mask in masks for name in (mask.scores, mask.greatest)])
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    found = {}
    for mask in masks:
        lowest, greatest = known[mask.greatest]
        top = max(known[mask.scores][1], greatest)
        margin = (top - lowest - LEAST) * _MARGIN
        least = lowest + LEAST - margin
        tensor = constants[mask.constant]
        values = np.maximum(numpy_helper.to_array(tensor), np.float32(least - top - margin))
        set_values(tensor, values)
        found[mask.total] = range_override(least, greatest)
    return found


# Both operands of a matrix product of two activations are quantised around 0.

#: Operators whose results have the codes, and the scale, of their first operand.
_KEEPING = ("Flatten", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")


def around_zero(model: onnx.ModelProto, known: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return overrides with those that are ``known``, and zero points of 0 for operands of products of two activations.

    The terms that another zero point adds to a sum of products of codes depend on the codes.
    """
    return {**known, **{name: [{**known.get(name, [{}])[0], "symmetric": True}] for name in _operands(model)}}


def _operands(model: onnx.ModelProto) -> Iterator[str]:
    graph = OnnxGraph.of(model)
    for node in graph.nodes:
        if node.op_type != "MatMul" or graph.constants.keys() & {*node.input}:
            continue
        for name in node.input:
            yield name
            made = graph.producer.get(name)
            while made is not None and made.op_type in _KEEPING:
                yield made.input[0]
                made = graph.producer.get(made.input[0])
