"""The graph that ONNX Runtime executes, and sessions as the reference opens them."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import onnx
import onnxruntime
from onnx import numpy_helper

from .model_graph import INTEGER_PRODUCTS, has_unsigned, is_qdq, keep_inputs, model_inputs
from .runtime import open_with, session_options
from .zero_points import own_zero_points

#: Without VNNI the kernels for uint8 activations add pairs of products in 16 bits, and saturate, unless this is set.
#: Those for int8 activations never do, and have no kernel for the weights that it would make.
_EXACT_SUMS = "session.x64quantprecision"


def _reference_options(model: onnx.ModelProto) -> onnxruntime.SessionOptions:
    options = session_options(qdq=is_qdq(model))
    if _needs_exact_sums(model):
        options.add_session_config_entry(_EXACT_SUMS, "1")
    return options


def _needs_exact_sums(model: onnx.ModelProto) -> bool:
    """Whether activations are uint8, and no product reads int8 codes, for which there are no kernels then."""
    if not has_unsigned(model):
        return False
    executed = executed_model(model)
    types = {tensor.name: tensor.data_type for tensor in executed.graph.initializer}
    zeros = {node.input[2] for node in executed.graph.node if node.op_type in INTEGER_PRODUCTS}
    return onnx.TensorProto.INT8 not in {types.get(name) for name in zeros}


def _shareless(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, as it can be opened where its sums must be exact."""
    return own_zero_points(model) if has_unsigned(model) else model


def _prepared(model: bytes) -> tuple[bytes, onnxruntime.SessionOptions]:
    """A serialised model as the reference opens it, and the options."""
    loaded = onnx.load_from_string(model)
    shareless = _shareless(loaded)
    return model if shareless is loaded else shareless.SerializeToString(), _reference_options(shareless)


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """Open a serialised model, or a part cut from one, as the reference does."""
    return open_with(*_prepared(model))


def executed_model(model: onnx.ModelProto, *, exact_sums: bool = False) -> onnx.ModelProto:
    """The graph that ONNX Runtime makes of a model and executes, as it writes it itself under the reference's options.

    Every fusion is done in it: whoever shows more of its tensors, or runs a part of it, opens it with
    :func:`plain_session`, so that ONNX Runtime changes nothing any more. What is missing is its last level, which only
    changes layouts: float convolutions may add up in another order then, no quantised operator does.

    Parameters
    ----------
    model : ModelProto
    exact_sums : bool
        Whether the weights of uint8 activations are what the processor needs for exact sums, which may be uint8.
    """
    model = _shareless(model) if exact_sums else model
    options = _reference_options(model) if exact_sums else session_options(qdq=is_qdq(model))
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "executed.onnx"
        options.optimized_model_filepath = str(path)
        open_with(model.SerializeToString(), options)
        executed = onnx.load(path)
    # ONNX Runtime leaves initializers among the inputs that it has fused away.
    keep_inputs(executed, [value.name for value in model_inputs(model)])
    _name_by_origin(model, executed)
    return executed


def _name_by_origin(model: onnx.ModelProto, executed: onnx.ModelProto) -> None:
    """Name what ONNX Runtime adds to a model after what it is computed from.

    It numbers the tensors that it adds, in an order that the whole model decides: beside a model in which nodes stand
    for functions they could swap their names, and one would be compared with another.
    """
    given = {name for node in model.graph.node for name in (*node.input, *node.output)}
    given |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    renamed: dict[str, str] = {}
    #: Names of what is added, shortened: a name must not hold those of all that is before it.
    short: dict[str, str] = {}
    constants = {tensor.name: tensor for tensor in executed.graph.initializer}
    for node in executed.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        if given.issuperset(filter(None, node.output)):
            continue
        # Constants by what they hold: of equal ones ONNX Runtime keeps any.
        shown = [
            _digest(numpy_helper.to_array(constants[name]).tobytes()) if name in constants else short.get(name, name)
            for name in node.input
            if name in given or name in short or name in constants
        ]
        sources = ", ".join(shown)
        for position, name in enumerate(node.output):
            if name and name not in given:
                number, added = 1, f"{node.op_type} of {sources}"
                while added in given or added in short:
                    number, added = number + 1, f"{node.op_type} {number + 1} of {sources}"
                renamed[name] = node.output[position] = added
                short[added] = _digest(added.encode())
    for value in executed.graph.value_info:
        value.name = renamed.get(value.name, value.name)


def _digest(data: bytes) -> str:
    return hashlib.blake2s(data, digest_size=4).hexdigest()


def open_host_part(part: bytes) -> onnxruntime.InferenceSession:
    """Open a head or tail that was cut out of what ONNX Runtime executes.

    It is opened as the reference opens a model, but with every QuantizeLinear and DequantizeLinear where it stands.
    By itself ONNX Runtime would merge what it does not merge in the whole network, where a tensor between two
    quantisations has other readers too; and it would dequantise constant weights beforehand, which other kernels with
    another order of additions multiply then. What can be computed beforehand has been.
    """
    part, options = _prepared(part)
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(
        part,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["ConstantFolding", "DoubleQDQPairsRemover"],
    )
