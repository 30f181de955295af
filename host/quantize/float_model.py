"""Read and check the float model that is quantised: its types, its first axis, and the samples."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnxruntime.quantization.shape_inference import quant_pre_process

from ..frontend import ModelError
from ..frontend.parse import check_file, check_inputs, fix_batch, measure
from ..frontend.source import Source
from ..model.arrays import check_feeds, describe_model
from ..model.as_read import reads
from ..model.executed import open_session
from ..model.model import Model
from ..model.model_graph import keep_inputs, model_inputs
from ..model.onnx_graph import operator_set, set_values
from ..model.runtime import RUNTIME_ERRORS
from ..model.whole_samples import with_axis
from .names import rename_shapes
from .rewriting import SPELLINGS, WRITTEN_OUT, Rewritten, rewrite
from .rewriting.float_graph import normalised_rows
from .rewriting.normalisation import as_instances

#: The first operator set whose QuantizeLinear has a scale for each channel.
_OPSET = 13
#: The first operator set whose Resize has a choice of coordinates.
_COORDINATES = 11


@dataclass(frozen=True)
class FloatModel:
    """A float model and samples for it, both checked.

    Attributes
    ----------
    file : Model
        The model in float32, with samples along the first axis, see :mod:`~lutterfly.host.model.whole_samples`.
    model : ModelProto
        The same model, which may be changed.
    samples : list of dict of str to array
        Samples in float32; the first axis counts them.
    was_half : bool
        Whether anything was float16 or bfloat16.
    """

    file: Model
    model: onnx.ModelProto
    samples: list[dict[str, np.ndarray]]
    was_half: bool


def read_with_samples(given: Model, name: str, *samples: tuple[str, Mapping[str, np.ndarray]]) -> FloatModel:
    """Read a float model with one or more sets of samples; the first set decides whether its first axis counts samples.

    Parameters
    ----------
    given : Model
    name : str
        Name of the model in messages.
    samples : tuple of (str, mapping of str to array)
        Name of a set in messages, and every input by name.

    Raises
    ------
    ModelError
        If the file is no ONNX model that ONNX Runtime runs, is quantised already, has a dynamic dimension beside the
        batch, or if its first axis is no batch.
    ValueError
        If a name, a shape, a type or a value of the samples is wrong.
    """
    file, was_half, arrays = in_float32(given, name, *(one for _, one in samples))
    file = with_axis(file)
    model = read_float_model(file, name)
    checked = [check_samples(file, array, origin) for (origin, _), array in zip(samples, arrays, strict=True)]
    check_batch(file, checked[0], name)
    return FloatModel(file, model, checked, was_half)


def check_samples(model: Model, samples: Mapping[str, np.ndarray], origin: str) -> dict[str, np.ndarray]:
    """Check samples for a model; return them with a first axis that counts them.

    Raises
    ------
    ValueError
        If a name, a shape, a type or a value is wrong.
    """
    inputs = describe_model(model)[0]
    try:
        check_feeds(inputs, samples)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{origin}: {error}") from error
    for input_name, array in samples.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{origin}: input {input_name} must be finite in all samples, and is not")
    return {info.name: info.with_samples(samples[info.name]) for info in inputs}


def read_float_model(file: Model, name: str) -> onnx.ModelProto:
    """Return the model of an ONNX file, which may be changed.

    Raises
    ------
    ModelError
        If ONNX Runtime cannot run it, it is quantised already, or has a dynamic dimension beside the batch.
    """
    check_file(file, name)
    model = file.copy()
    _check_float(model, name)
    keep_inputs(model, [value.name for value in model_inputs(model)])
    sample = Source(name, copy.deepcopy(model), file, qdq=False)
    check_inputs(sample)
    fix_batch(sample.model)
    measure(sample)
    return model


def _check_float(model: onnx.ModelProto, name: str) -> None:
    for node in model.graph.node:
        if node.op_type.startswith(("QLinear", "QGemm", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize")):
            raise ModelError(
                f"{name}: must be a float model, and {node.op_type} '{node.name}' shows that it is quantised; "
                "use it as it is, or quantise the float model that it was made from"
            )


def prepare(
    model: onnx.ModelProto, name: str, folder: Path, samples: Mapping[str, np.ndarray] | None = None
) -> tuple[onnx.ModelProto, list[Rewritten]]:
    """Return the model, with constants computed, batch normalisation folded and shapes known, rewritten; and the
    rewritings.

    The spelling of normalisations depends on how much magnitudes vary in the samples.
    """
    version = operator_set(model)
    if version < _OPSET:
        try:
            model = onnx.version_converter.convert_version(model, _OPSET)
        except (RuntimeError, onnx.version_converter.ConvertError) as error:
            raise ModelError(
                f"{name}: cannot be converted from operator set {version} to {_OPSET}, which scales for each channel "
                f"need: {str(error).splitlines()[0]}; export it with operator set {_OPSET} or later"
            ) from error
        if version < _COORDINATES:
            _keep_coordinates(model)
    # With a fixed batch, shapes are known, and so are ONNX Runtime's fusions and constants such as initial states.
    fix_batch(model)
    as_instances(model)
    # The model passes through a file, as the function removes the constants of a model in memory.
    source, target = folder / "float.onnx", folder / "prepared.onnx"
    onnx.save(model, source)
    quant_pre_process(source, target, skip_symbolic_shape=True)
    model = onnx.load(target)
    rename_shapes(model)
    found = rewrite(model, WRITTEN_OUT, {})
    found += rewrite(model, SPELLINGS, normalised_rows(model, samples) if samples else {})
    drop_unread(model)
    return model, found


def _keep_coordinates(model: onnx.ModelProto) -> None:
    """Give every Resize its meaning before there was a choice, which onnx's conversion does not preserve."""
    for node in model.graph.node:
        if node.op_type == "Resize":
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
            node.attribute.append(helper.make_attribute("nearest_mode", "floor"))


def drop_unread(model: onnx.ModelProto) -> None:
    """Remove constants without readers, each of which ONNX Runtime warns about."""
    read = {name for node in model.graph.node for name in reads(node)} | {value.name for value in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


# Models in float16 or bfloat16 are converted to float32, which holds all of their values.

_HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Attributes that name the type of a result.
_TYPES = ("to", "dtype", "output_dtype", "stash_type", "softmax_precision")


def in_float32(
    model: Model, name: str, *samples: Mapping[str, np.ndarray]
) -> tuple[Model, bool, list[dict[str, np.ndarray]]]:
    """Return a model and its samples with float32 in place of float16 and bfloat16.

    Parameters
    ----------
    model : Model
    name : str
        Name of the model in messages.
    samples : mapping of str to array

    Returns
    -------
    model : Model
        The converted model; the given one if it has neither type.
    is_changed : bool
    samples : list of dict of str to array
        The given samples, converted.

    Raises
    ------
    ModelError
        If the file is no ONNX model.
    """
    check_file(model, name)
    given = [dict(each) for each in samples]
    proto = model.copy()
    if not _widen(proto):
        return model, False, given
    return Model.written(proto), True, [{name: _widened(array) for name, array in each.items()} for each in given]


def _widened(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _widen(model: onnx.ModelProto) -> int:
    """Convert tensors of the two types to float32, and return their number, as the functions below do."""
    nodes = [node for function in model.functions for node in function.node]
    return _widen_graph(model.graph) + sum(map(_widen_node, nodes))


def _widen_graph(graph: GraphProto) -> int:
    values = (*graph.input, *graph.output, *graph.value_info)
    return sum(map(_widen_value, values)) + _widen_tensors(graph.initializer) + sum(map(_widen_node, graph.node))


def _widen_value(value: ValueInfoProto) -> int:
    kind = value.type.tensor_type
    if kind.elem_type not in _HALVES:
        return 0
    kind.elem_type = TensorProto.FLOAT
    return 1


def _widen_tensors(tensors: Iterable[TensorProto]) -> int:
    found = [tensor for tensor in tensors if tensor.data_type in _HALVES]
    for tensor in found:
        set_values(tensor, numpy_helper.to_array(tensor).astype(np.float32))
    return len(found)


def _widen_node(node: NodeProto) -> int:
    return sum(map(_widen_attribute, node.attribute))


def _widen_attribute(attribute: AttributeProto) -> int:
    if attribute.type == AttributeProto.INT and attribute.name in _TYPES and attribute.i in _HALVES:
        attribute.i = TensorProto.FLOAT
        return 1
    if attribute.type == AttributeProto.TENSOR:
        return _widen_tensors([attribute.t])
    if attribute.type == AttributeProto.GRAPH:
        return _widen_graph(attribute.g)
    return _widen_tensors(attribute.tensors) + sum(map(_widen_graph, attribute.graphs))


# The first axis of a float model's inputs counts samples if two together give the results of each alone.

#: Greatest difference of outputs, relative to the largest value, as float32 sums have another order in a batch.
_ROUNDING = 1e-3
_REMEDY = (
    "export the model with the samples first and a fixed length, such as [batch, time, features] (PyTorch: "
    "batch_first=True), or with all sizes fixed, such as [20, 1, features], which are one sample then"
)


def check_batch(model: Model, samples: Mapping[str, np.ndarray], name: str) -> None:
    """Run a model on two samples together and on each alone.

    Models whose first axis is fixed, and those that cannot run on two samples, are not checked.

    Parameters
    ----------
    model : Model
        A float model.
    samples : mapping of str to array
        Every input by name, accepted by :func:`~.float_model.check_samples`.
    name : str
        Name of the model in messages.

    Raises
    ------
    ModelError
        If an output differs, as the first axis is another one, such as time, and samples would be divided.
    """
    if len(dynamic_batches(model.proto)) < len(model_inputs(model.proto)):
        return
    try:
        output = _differing_output(model, samples)
    except RUNTIME_ERRORS:
        return
    if output is not None:
        inputs = ", ".join(repr(key) for key in samples)
        raise ModelError(
            f"{name}: the first axis of its inputs ({inputs}) must count samples, and is another one, such as time: "
            f"output {output!r} of two samples together is not that of each alone; {_REMEDY}"
        )


def dynamic_batches(model: onnx.ModelProto) -> dict[str, str]:
    """Return the name of the first axis of each input where it is dynamic."""
    dimensions = {value.name: value.type.tensor_type.shape.dim[0] for value in model_inputs(model)}
    return {name: axis.dim_param or "batch" for name, axis in dimensions.items() if axis.dim_value != 1}


def free_batch(model: onnx.ModelProto, given: Mapping[str, str], samples: Mapping[str, np.ndarray]) -> None:
    """Make the first axis of inputs dynamic again, if the model gives the same results for two samples as for each.

    Parameters
    ----------
    model : ModelProto
        A model with a batch of 1, which stays fixed if a part of the model depends on it.
    given : mapping of str to str
        Name of the axis, by input.
    samples : mapping of str to array
    """
    freed = copy.deepcopy(model)
    for value in freed.graph.input:
        if value.name in given:
            value.type.tensor_type.shape.dim[0].dim_param = given[value.name]
    for value in freed.graph.output:
        value.type.tensor_type.ClearField("shape")
    del freed.graph.value_info[:]
    freed = onnx.shape_inference.infer_shapes(freed)
    if not given or not all(value.type.tensor_type.HasField("shape") for value in freed.graph.output):
        return
    try:
        if _differing_output(Model.written(freed), samples) is None:
            model.CopyFrom(freed)
    except RUNTIME_ERRORS:
        return


def _differing_output(model: Model, samples: Mapping[str, np.ndarray]) -> str | None:
    """Return an output that differs between two samples together and each alone; None if there is none."""
    session, both = open_session(model), _two(samples)
    outputs = [info.name for info in session.get_outputs()]
    together = session.run(outputs, both)
    alone = [session.run(outputs, {key: array[place : place + 1] for key, array in both.items()}) for place in range(2)]
    for output, found, parts in zip(outputs, together, zip(*alone, strict=True), strict=True):
        if not _is_of_each(found, parts):
            return output
    return None


def _two(samples: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the first sample and one that differs from it, made from its own values if there is no other."""
    count = len(next(iter(samples.values())))
    others = (place for place in range(1, count) if any((a[place] != a[0]).any() for a in samples.values()))
    place = next(others, None)
    if place is not None:
        return {name: array[[0, place]] for name, array in samples.items()}
    return {
        name: np.concatenate([array[:1], np.roll(array[:1].reshape(-1), 1).reshape(array[:1].shape)])
        for name, array in samples.items()
    }


def _is_of_each(together: np.ndarray, parts: Sequence[np.ndarray]) -> bool:
    """Return whether an output of two samples consists of those of each, along any axis, or is the same for both."""
    if all(_is_near(together, part) for part in parts):
        return True
    return any(_is_near(together, np.concatenate(parts, axis)) for axis in range(parts[0].ndim))


def _is_near(found: np.ndarray, expected: np.ndarray) -> bool:
    if found.shape != expected.shape:
        return False
    if not np.issubdtype(found.dtype, np.floating):
        return bool(np.array_equal(found, expected))
    greatest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return bool(np.allclose(found, expected, rtol=0, atol=_ROUNDING * greatest, equal_nan=True))
