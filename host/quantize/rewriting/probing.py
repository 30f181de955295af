"""What ONNX Runtime computes along each axis of a feature map, as a matrix: read off by unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import NodeProto, helper, numpy_helper

from ...model.runtime import RUNTIME_ERRORS, plain_session
from .float_graph import FloatGraph, given

Matrix = npt.NDArray[np.float64]
#: A function of feature maps: float32[1, channels, ...] to float32[1, channels, ...].
Run = Callable[[np.ndarray], np.ndarray]

_SAME = 1e-5


def axis_matrices(graph: FloatGraph, node: NodeProto) -> list[Matrix] | None:
    """The matrices of a Resize along its spatial axes, see :func:`matrices_of`."""
    source, target = graph.spatial(node.input[0]), graph.spatial(node.output[0])
    if not source or len(source) != len(target) or source[0] != target[0]:
        return None
    run = _runner(graph, node, target[1:])
    return None if run is None else matrices_of(run, source[1:], target[1:])


def matrices_of(run: Run, sizes: Sequence[int], target: Sequence[int]) -> list[Matrix] | None:
    """The matrices of a linear function of feature maps along their spatial axes.

    Parameters
    ----------
    run : callable
        The function, of float32[1, channels, *sizes] with any number of channels.
    sizes, target : sequence of int
        Of its input and its result along each axis.

    Returns
    -------
    list of float64[outputs, inputs] or None
        None if it is no product of matrices along the axes, or mixes channels.
    """
    matrices = []
    for axis, size in enumerate(sizes):
        # One unit vector for each channel, alike along the other axes.
        shape = [size if at == axis else 1 for at in range(len(sizes))]
        units = np.broadcast_to(np.eye(size).reshape(1, size, *shape), (1, size, *sizes))
        result = np.moveaxis(run(units.astype(np.float32))[0], 1 + axis, 1)
        matrices.append(result.reshape(size, target[axis], -1)[:, :, 0].T.astype(np.float64))
    values = np.random.default_rng(0).normal(size=(1, 2, *sizes)).astype(np.float32)
    wanted = values.astype(np.float64)
    for axis, matrix in enumerate(matrices):
        wanted = np.moveaxis(np.tensordot(matrix, wanted, axes=(1, 2 + axis)), 0, 2 + axis)
    found = run(values)
    return matrices if found.shape == wanted.shape and np.abs(found - wanted).max() < _SAME else None


def _runner(graph: FloatGraph, node: NodeProto, target: list[int]) -> Run | None:
    """The operator on any number of channels; None if ONNX Runtime does not run it."""
    copied, tensors, attributes = onnx.NodeProto(), [], given(node)
    axes = named if isinstance(named := attributes.get("axes"), list) else None
    copied.CopyFrom(node)
    copied.input[0], copied.output[0] = "probe", "found"
    if axes is not None:
        # Sizes and scales are given for all axes.
        if attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
            return None
        kept = [item for item in copied.attribute if item.name not in ("axes", "keep_aspect_ratio_policy")]
        del copied.attribute[:]
        copied.attribute.extend(kept)
    for at, name in enumerate(node.input[1:], 1):
        if name in graph.constants and graph.constants[name].size:
            values = graph.constants[name]
            is_sizes = at == 3
            if axes is not None and at == 2:
                every = np.ones(2 + len(target), np.float32)
                every[[axis % len(every) for axis in axes]] = values
                values = every
            tensors.append((name, None if is_sizes else values))
        elif name and at < 3:
            copied.input[at] = ""
        elif name:
            tensors.append((name, None))

    def run(values: np.ndarray) -> np.ndarray:
        held = [
            numpy_helper.from_array(
                np.array([*values.shape[:2], *target], np.int64) if constant is None else constant, name
            )
            for name, constant in tensors
        ]
        ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("probe", "found")]
        ends[0].CopyFrom(helper.make_tensor_value_info("probe", onnx.TensorProto.FLOAT, values.shape))
        ends[1].CopyFrom(helper.make_tensor_value_info("found", onnx.TensorProto.FLOAT, [None] * values.ndim))
        model = helper.make_model(
            helper.make_graph([copied], "probe", ends[:1], ends[1:], held),
            opset_imports=graph.opsets,
            ir_version=graph.ir_version,
        )
        return plain_session(model).run(None, {"probe": values})[0]

    try:
        run(np.zeros((1, 1, *graph.spatial(node.input[0])[1:]), np.float32))
    except RUNTIME_ERRORS:
        return None
    return run
