"""Tensors that are to have one scale: as those of a network's steps, so that all steps have the same constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ..model.arrays import sample_count
from ..model.model_graph import computed_tensors, expose
from ..model.runtime import plain_session


def common_ranges(
    model: onnx.ModelProto, samples: Mapping[str, np.ndarray], groups: Sequence[Sequence[str]]
) -> dict[str, list[dict[str, Any]]]:
    """The range that all tensors of a group have together, for each of them as an override of its quantisation.

    Parameters
    ----------
    model : ModelProto
        Float.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    groups : sequence of sequence of str
        Tensors of the model; what it lacks is left out.
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
    """The least and the greatest value that tensors of a float model have for samples."""
    session = plain_session(expose(model, names))
    least, greatest = dict.fromkeys(names, np.inf), dict.fromkeys(names, -np.inf)
    for index in range(sample_count(samples)):
        feeds = {name: array[index : index + 1] for name, array in samples.items()}
        for name, values in zip(names, session.run(names, feeds), strict=True):
            least[name], greatest[name] = min(least[name], values.min()), max(greatest[name], values.max())
    return {name: (float(least[name]), float(greatest[name])) for name in names}


def range_override(least: float, greatest: float) -> list[dict[str, Any]]:
    """What onnxruntime.quantization takes as the range of a tensor."""
    return [{"rmin": np.array(least, np.float32), "rmax": np.array(greatest, np.float32)}]


def cut_outputs(model: onnx.ModelProto) -> list[str]:
    """Outputs that a Relu or Clip reads and nothing else: onnxruntime.quantization gives them the range behind it.

    Nobody would see what is cut, but that they are outputs: of a sum its negative values were missing.
    """
    readers: dict[str, list[str]] = {value.name: [] for value in model.graph.output}
    for node in model.graph.node:
        for name in {*node.input} & readers.keys():
            readers[name].append(node.op_type)
    return [name for name, operators in readers.items() if operators in (["Relu"], ["Clip"])]
