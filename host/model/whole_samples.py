"""Models for which a sample is a whole tensor, its first axis included, such as states of layers or steps of time.

Other packages count samples along the first axis. So such tensors get a leading axis for samples, with a Reshape to
the form of the file; the model's metadata list them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .arrays import WHOLE_KEY
from .model import Model
from .model_graph import free_name, model_inputs, rename_tensors, tensor_names
from .onnx_graph import set_nodes
from .runtime import RUNTIME_ERRORS, plain_session

#: A shape without and with the axis for samples.
_Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def with_axis(model: Model) -> Model:
    """Return the model with a leading axis for samples in all inputs and outputs that have none.

    It is the given model if every input's first axis is dynamic or 1, if that axis counts samples, or if another
    dimension is not fixed, which running it shows.
    """
    proto = model.proto
    shapes = {value.name: _fixed(value) for value in model_inputs(proto)}
    whole = [name for name, shape in shapes.items() if shape and shape[0] > 1]
    if not whole or _named(proto) or not all(shapes.values()):
        return model
    try:
        outputs = _outputs(proto, shapes)
    except RUNTIME_ERRORS:
        return model
    if outputs is None:
        return model
    whole += [name for name, shape in outputs.items() if shape and shape[0] != 1]
    shapes |= outputs
    changed = model.copy()
    _change_ends(changed, {name: (shapes[name], (1, *shapes[name])) for name in whole})
    changed.metadata_props.add(key=WHOLE_KEY, value=json.dumps(whole))
    return Model.written(changed)


def mark(proto: onnx.ModelProto, like: onnx.ModelProto) -> None:
    """Copy the list of such tensors from the model of which another one was made."""
    if _named(like) and not _named(proto):
        proto.metadata_props.add(key=WHOLE_KEY, value=json.dumps(_named(like)))


def without_axis(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of :func:`with_axis`, or one made of it, in the form of the file."""
    whole = _named(proto)
    if not whole:
        return proto
    changed = copy.deepcopy(proto)
    kept = [entry for entry in changed.metadata_props if entry.key != WHOLE_KEY]
    del changed.metadata_props[:]
    changed.metadata_props.extend(kept)
    shapes = {value.name: _fixed(value) for value in (*changed.graph.input, *changed.graph.output)}
    _change_ends(changed, {name: (shapes[name], shapes[name][1:]) for name in whole})
    return changed


def _named(proto: onnx.ModelProto) -> list[str]:
    return next((json.loads(entry.value) for entry in proto.metadata_props if entry.key == WHOLE_KEY), [])


def _fixed(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the shape if all dimensions are fixed and none is 0, else nothing."""
    sizes = tuple(item.dim_value for item in value.type.tensor_type.shape.dim)
    return sizes if sizes and min(sizes) > 0 else ()


def _outputs(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the outputs; None if the first axis of all inputs and outputs counts samples."""
    session = plain_session(proto)
    names = [value.name for value in session.get_outputs()]
    types = {value.name: value.type for value in session.get_inputs()}
    rng = np.random.default_rng(0)

    def random(name: str) -> np.ndarray:
        is_float = types[name] in ("tensor(float)", "tensor(float16)", "tensor(double)")
        values = rng.normal(size=shapes[name]) if is_float else rng.integers(0, 2, shapes[name])
        return values.astype(helper.tensor_dtype_to_np_dtype(_element_type(proto, name)))

    first, second = ({name: random(name) for name in shapes} for _ in range(2))
    given = session.run(names, first)
    found = {name: tuple(array.shape) for name, array in zip(names, given, strict=True)}
    count = {shape[:1] for shape in (*shapes.values(), *found.values())}
    if len(count) > 1:
        return found
    (size,) = next(iter(count))
    for row in (0, size - 1):
        others = np.arange(size) != row
        feeds = {name: array.copy() for name, array in first.items()}
        for name, array in feeds.items():
            array[row] = second[name][row]
        for before, after in zip(given, session.run(names, feeds), strict=True):
            if not np.allclose(before[others], after[others], rtol=1e-3, atol=1e-6, equal_nan=True):
                return found
    return None


def _element_type(proto: onnx.ModelProto, name: str) -> int:
    return next(value.type.tensor_type.elem_type for value in proto.graph.input if value.name == name)


def _change_ends(proto: onnx.ModelProto, shapes: Mapping[str, _Shapes]) -> None:
    """Change the shapes of inputs and outputs from the first, which the nodes use, to the second."""
    graph, taken = proto.graph, {*tensor_names(proto.graph)}
    inner = {name: free_name(f"{name}_inner", taken) for name in shapes}
    rename_tensors(graph, inner)
    front: list[onnx.NodeProto] = []
    # ONNX Runtime joins a Reshape with the next one, and calls the new shape after the first: no such tensor may exist.
    nodes = {node.name for node in graph.node} | {tensor.removesuffix("_new_shape") for tensor in taken}
    for values, is_input in ((graph.input, True), (graph.output, False)):
        for value in values:
            name = next((name for name, own in inner.items() if own == value.name), None)
            if name is None:
                continue
            old, new = shapes[name]
            held = free_name(f"{name}_shape", taken)
            graph.initializer.append(numpy_helper.from_array(np.array(old if is_input else new, np.int64), held))
            ends = (name, inner[name]) if is_input else (inner[name], name)
            node = helper.make_node("Reshape", [ends[0], held], [ends[1]], free_name(f"{name}_axis", nodes))
            (front if is_input else graph.node).append(node)
            element = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(name, element, new))
    set_nodes(graph, [*front, *graph.node])
    del graph.value_info[:]
