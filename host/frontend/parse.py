"""Read an ONNX file: check it before anything runs, then let ONNX Runtime find constants, shapes and types."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import onnx
import onnxruntime
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, NodeProto, numpy_helper

from ..model.as_read import reads, unmade
from ..model.model import Model, external_files
from ..model.model_graph import FREE_INITIALIZERS, computed_tensors, expose, is_qdq, model_inputs
from ..model.onnx_graph import attributes_of, initial_values
from ..model.runtime import RUNTIME_ERRORS, open_with, plain_options, plain_session
from .source import ModelError, Source, connect, size

# Texts of an ONNX file: names must be UTF-8, which no reader of the file checks.

#: Fields for people only, whose contents do no harm.
_COMMENTS = ("doc_string",)


def wrong_text(message: Message, place: str = "") -> str:
    """Return the place of the first text that is not UTF-8, as in ``graph.node[3].name``; empty if all are."""
    for field, value in message.ListFields():
        if field.type not in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING) or field.name in _COMMENTS:
            continue
        here = f"{place}.{field.name}" if place else field.name
        is_single = isinstance(value, Message | str | bytes)
        for index, item in enumerate([value] if is_single else value):
            inner = here if is_single else f"{here}[{index}]"
            # Protobuf returns a text that it cannot decode as bytes.
            found = wrong_text(item, inner) if isinstance(item, Message) else inner if isinstance(item, bytes) else ""
            if found:
                return found
    return ""


QUANTISE = "quantise the float model with `lutterfly quantize MODEL --calibrate inputs.npz`"
PER_TENSOR = "quantise activations per tensor (per_channel concerns weights alone)"
DYNAMIC_OPERATORS = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")

#: Types of NumPy arrays that ONNX Runtime takes.
_ELEMENT_TYPES = [
    getattr(onnx.TensorProto, name)
    for name in (
        "BOOL",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "FLOAT16",
        "FLOAT",
        "DOUBLE",
    )
]
#: The most elements of an input: the bytes of the simulated accelerator's external memory.
_ELEMENTS = 256 << 20

# A serialised ModelProto begins with field 1, the IR version.
_MODEL_TAG = b"\x08"


def check_file(file: Model, name: str) -> None:
    """Check a file of any network.

    Raises
    ------
    ModelError
        If it is not ONNX, or is truncated or invalid.
    """
    if not file:
        raise ModelError(f"{name}: must be an ONNX file, not an empty one")
    try:
        model = file.proto
    except DecodeError as error:
        if file.data.startswith(_MODEL_TAG):
            raise ModelError(
                f"{name}: the ONNX file is truncated or damaged after {len(file.data)} bytes; export or copy it again"
            ) from error
        raise ModelError(f"{name}: must be an ONNX file; export the network to ONNX") from error
    place = wrong_text(model)
    if place:
        raise ModelError(
            f"{name}: {place} must be a text in UTF-8, and is not: the file is damaged; export or copy it again"
        )
    files = external_files(model)
    if files:
        raise ModelError(
            f"{name}: keeps weights in {', '.join(map(repr, files))}; give the path of the file instead "
            "of its contents, or export the model again with external_data=False"
        )
    if not model.graph.node:
        raise ModelError(f"{name}: must be an ONNX file with a graph of operators; export the network to ONNX")
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        if not _opens(file):
            raise ModelError(f"{name}: is not a valid ONNX model: {_reason(model, error)}; export it again") from error
    _check_names(model, name)
    if not model.graph.output:
        raise ModelError(f"{name}: the graph must have an output, and has none; export the network again")
    for tensor in model.graph.initializer:
        # The checker takes any number for a type.
        if tensor.data_type not in onnx.TensorProto.DataType.values():
            raise ModelError(
                f"{name}: tensor {tensor.name!r} has elements of the type {tensor.data_type}, which ONNX does not "
                "define: the file is damaged; export or copy it again"
            )


def _opens(file: Model) -> bool:
    """Return whether ONNX Runtime opens a model, even if it breaks the standard, for instance without shapes of
    outputs."""
    try:
        open_with(file.data, plain_options())
    except RUNTIME_ERRORS:
        return False
    return True


def _reason(model: onnx.ModelProto, error: onnx.checker.ValidationError) -> str:
    """Return the error of a model; if nodes cannot be sorted, the checker's message would only say that they are
    not."""
    found = unmade(model.graph)
    if found is None:
        return str(error).splitlines()[0]
    node, tensor = found
    is_made = any(tensor in other.output for other in model.graph.node)
    why = "which is computed from its own result" if is_made else "which nothing computes"
    shown = repr(node.name) if node.name else f"that gives {node.output[0]!r}"
    return f"{node.op_type} {shown} reads {tensor!r}, {why}"


def parse(file: Model, name: str) -> Source:
    """Take a quantised model from a file that :func:`check_file` accepts.

    Raises
    ------
    ModelError
        If :func:`check_inputs` raises it, or the model has no quantised operator.
    """
    model = file.copy()
    _check_quantised(model, name)
    name_nodes(model)
    source = Source(name, model, file, is_qdq(model))
    _check_fixed(source)
    check_inputs(source)
    _check_per_tensor(source)
    return source


def _check_names(model: onnx.ModelProto, name: str) -> None:
    """Refuse two nodes of one name, as ONNX Runtime does."""
    taken: set[str] = set()
    for node in model.graph.node:
        if node.name in taken:
            raise ModelError(
                f"{name}: two nodes must not have the name {node.name!r}, as ONNX Runtime refuses them; "
                "give each node a name of its own, or none"
            )
        taken |= {node.name} - {""}


def _check_fixed(source: Source) -> None:
    """Refuse scales and weights that a caller may replace, which ONNX Runtime does not fuse."""
    graph = source.model.graph
    listed = {value.name for value in graph.input} - set(source.inputs)
    if not (source.qdq and listed) or source.model.ir_version < FREE_INITIALIZERS:
        return
    shown = next(tensor.name for tensor in graph.initializer if tensor.name in listed)
    raise ModelError(
        f"{source.name}: initializer {shown!r} must not be listed among the inputs of the graph: a caller may replace "
        "it then, and ONNX Runtime computes in float; export the network with keep_initializers_as_inputs=False "
        "(torch.onnx.export, and Brevitas), or take all of them out with "
        "python -m onnxruntime.tools.remove_initializer_from_input"
    )


def _check_per_tensor(source: Source) -> None:
    """Refuse activations with a scale for each channel, which ONNX Runtime fuses, and then fails to run."""
    graph = source.model.graph
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            sizes[node.output[0]] = math.prod(node.attribute[0].t.dims)
    dynamic = set(source.inputs)
    for node in graph.node:
        if not dynamic & set(node.input):
            continue
        dynamic |= set(node.output)
        if node.op_type in ("QuantizeLinear", "DequantizeLinear") and sizes.get(node.input[1], 1) != 1:
            raise ModelError(
                f"{source.name}: the scale {node.input[1]!r} of {node.op_type} {node.name!r} must be one value, not "
                f"{sizes[node.input[1]]}; {PER_TENSOR}"
            )


def _check_quantised(model: onnx.ModelProto, name: str) -> None:
    for node in model.graph.node:
        if node.op_type in DYNAMIC_OPERATORS:
            raise ModelError(
                f"{name}: {node.op_type} {node.name!r} quantises at run time, and the accelerator needs "
                f"fixed scales; {QUANTISE}"
            )
    operators = {node.op_type for node in model.graph.node}
    codes = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
    on_codes = any(value.type.tensor_type.elem_type in codes for value in model_inputs(model))
    quantised = any(operator in ("QuantizeLinear", "QGemm") or operator.startswith("QLinear") for operator in operators)
    if not on_codes and not quantised:
        raise ModelError(f"{name}: is a float model; {QUANTISE}")


def name_nodes(model: onnx.ModelProto) -> None:
    """Give every node a unique name, by which its counterpart in ONNX Runtime's graph is found."""
    given, taken = {node.name for node in model.graph.node}, set()
    for node in model.graph.node:
        name, begin = node.name, node.name or node.op_type
        numbers = itertools.count(2 if node.name else 1)
        while not name or name in taken:
            name = f"{begin}_{next(numbers)}"
            name = "" if name in given else name
        node.name = name
        taken.add(name)


def check_inputs(source: Source) -> None:
    """Check the type and the shape of every input.

    Raises
    ------
    ModelError
        If an input is no tensor of numbers, or too large; if a dimension other than the batch is dynamic, or the batch
        is neither dynamic nor 1.
    """
    for value in model_inputs(source.model):
        _check_type(source.name, value)
        dimensions = value.type.tensor_type.shape.dim
        if not dimensions:
            raise ModelError(
                f"{source.name}: input {value.name!r} must have a shape with a batch dimension; export "
                "it with fixed shapes"
            )
        batch, *others = dimensions
        # Paddle writes -1 where nothing is fixed.
        if batch.HasField("dim_value") and batch.dim_value not in (1, -1):
            raise ModelError(
                f"{source.name}: the batch of input {value.name!r} must be dynamic or 1, not "
                f"{batch.dim_value}; export the model with a dynamic batch, or, if this axis is no batch but time or "
                "layers, for instance, with fixed sizes of all axes of all inputs"
            )
        for axis, dimension in enumerate(others, 1):
            if dimension.dim_value < 1:
                shown = dimension.dim_param or (dimension.dim_value if dimension.HasField("dim_value") else "unknown")
                raise ModelError(
                    f"{source.name}: dimension {axis} of input {value.name!r} must be fixed, not {shown}; "
                    "only the batch may be dynamic: set it with "
                    "onnxruntime.tools.make_dynamic_shape_fixed"
                )
        elements = math.prod(dimension.dim_value for dimension in others)
        if elements > _ELEMENTS:
            raise ModelError(
                f"{source.name}: input {value.name!r} must have at most {_ELEMENTS:,} elements, which the "
                f"simulated accelerator's memory holds, not {elements:,}; export it for smaller inputs"
            )


def _check_type(name: str, value: onnx.ValueInfoProto) -> None:
    kind = value.type.WhichOneof("value")
    element = value.type.tensor_type.elem_type
    if kind == "tensor_type" and element in _ELEMENT_TYPES:
        return
    found = onnx.TensorProto.DataType.Name(element) if kind == "tensor_type" else f"a {(kind or 'value')[:-5]}"
    raise ModelError(
        f"{name}: input {value.name!r} must be a tensor of numbers, not {found.lower()}; take it out of "
        "the network, or convert it before"
    )


# Measure a model: ONNX Runtime computes its constants, and the shape and type of every tensor for one sample.

_OF_SHAPE = ("Shape", "Size")
_TENSOR = re.compile(r"tensor\((\w+)\)")
#: Types that ONNX Runtime returns as NumPy arrays.
_NUMPY_ELEMENTS = (
    "float",
    "double",
    "float16",
    "bool",
    "string",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


def fix_batch(model: ModelProto) -> None:
    """Set the batch to 1: the accelerator runs one sample at a time."""
    for value in model_inputs(model):
        batch = value.type.tensor_type.shape.dim[0]
        batch.Clear()
        batch.dim_value = 1
    for value in model.graph.output:
        # An input without a type would get an empty one.
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def measure(source: Source) -> None:
    """Run the model once on zeros in ONNX Runtime to find every constant, and the shape and type of every activation.

    Raises
    ------
    ModelError
        If ONNX Runtime cannot run the model, or an output is a single number for all samples of a batch.
    """
    model = source.model
    source.constants = initial_values(model.graph)
    dynamic = set(source.inputs)
    for node in model.graph.node:
        # A shape is known once the batch is fixed, independently of values.
        if node.op_type not in _OF_SHAPE and (dynamic & set(reads(node)) or node.op_type.startswith("Random")):
            dynamic |= set(node.output)
    dynamic.discard("")
    names = computed_tensors(model)
    try:
        session = plain_session(expose(model, names))
        _check_elements(source, session)
        feeds = {value.name: np.zeros(value.shape, _numpy_type(value.type)) for value in session.get_inputs()}
        values = dict(zip(names, session.run(names, feeds), strict=True)) | feeds
    except RUNTIME_ERRORS as error:
        raise ModelError(f"{source.name}: ONNX Runtime cannot run the model: {str(error).splitlines()[0]}") from error
    except MemoryError as error:
        raise ModelError(
            f"{source.name}: the network must fit this machine's memory, and does not: {error}; export it "
            "for smaller inputs"
        ) from error
    for name, value in values.items():
        if name not in dynamic and isinstance(value, np.ndarray):
            source.constants[name] = value
        elif isinstance(value, np.ndarray):
            source.shapes[name] = value.shape
            source.types[name] = value.dtype
    _fold_shapes(source)
    _spell_reshapes(source)
    _spell_identities(source)
    connect(source)
    _check_outputs(source)


def _check_outputs(source: Source) -> None:
    for name in source.outputs:
        if source.shapes.get(name) == ():
            node = next(node for node in source.model.graph.node if name in node.output)
            raise ModelError(
                f"{source.name}: output {name!r} must have a batch dimension, and {node.op_type} "
                f"{node.name!r} gives a single number; keep its dimensions (keepdims), or end the network "
                "before it"
            )
        if name not in source.shapes and name in source.constants and source.constants[name].shape == ():
            raise ModelError(
                f"{source.name}: output {name!r} must have a batch dimension, and is a constant number, whatever the "
                "input; take it out of the outputs (Brevitas: return_quant_tensor=False in the last layer)"
            )


def _fold_shapes(source: Source) -> None:
    """Replace shapes of activations by constants, so that no node reads the activation for its shape."""
    graph = source.model.graph
    for node in [node for node in graph.node if node.op_type in _OF_SHAPE]:
        graph.node.remove(node)
        graph.initializer.append(numpy_helper.from_array(source.constants[node.output[0]], node.output[0]))


def _spell_reshapes(source: Source) -> None:
    """Replace a Gather that takes every element once and in order, PyTorch's export of strided views, by a Reshape."""
    for node in source.model.graph.node:
        if node.op_type != "Gather" or node.input[0] not in source.shapes or node.input[1] not in source.constants:
            continue
        shape = source.shapes[node.input[0]]
        axis = attributes_of(node).get("axis", 0)
        taken = np.arange(size(shape)).reshape(shape).take(source.constants[node.input[1]], axis)
        if not np.array_equal(taken.reshape(-1), np.arange(size(shape))):
            continue
        target = source.add_constant(f"{node.output[0]} shape", np.array(taken.shape))
        node.op_type, node.input[1] = "Reshape", target
        del node.attribute[:]


def _spell_identities(source: Source) -> None:
    """Replace a Slice of everything, a Split into one part and a Concat of one tensor, which exporters write, by an
    Identity.
    """
    for node in source.model.graph.node:
        if _is_identity(source, node):
            node.op_type = "Identity"
            del node.input[1:]
            del node.attribute[:]


def _is_identity(source: Source, node: NodeProto) -> bool:
    if node.op_type == "Slice":
        steps = source.constants.get(node.input[4]) if len(node.input) > 4 else np.ones(1)
        forwards = steps is not None and (steps == 1).all()
        return forwards and source.shapes.get(node.input[0]) == source.shapes.get(node.output[0])
    return (node.op_type, len(node.output)) == ("Split", 1) or (node.op_type, len(node.input)) == ("Concat", 1)


def _check_elements(source: Source, session: onnxruntime.InferenceSession) -> None:
    for value in [*session.get_inputs(), *session.get_outputs()]:
        found = _TENSOR.fullmatch(value.type)
        if found is not None and found[1] not in _NUMPY_ELEMENTS:
            maker = next((node for node in source.model.graph.node if value.name in node.output), None)
            made = "" if maker is None else f" of {maker.op_type} {maker.name!r}"
            raise ModelError(
                f"{source.name}: {value.name!r}{made} must be of a type that NumPy has, not {found[1]}; "
                "export the model with float32 instead"
            )


def _numpy_type(name: str) -> np.dtype:
    element = name.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(element, element))
