"""ONNX Runtime as the reference: every integer tensor of a model, byte for byte as ONNX Runtime computes it."""

from __future__ import annotations

import functools
import hashlib
import platform
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_state

from .arrays import contents
from .random_numbers import random_tensors
from .zero_points import own_zero_points

#: What ONNX Runtime raises on a model that it cannot load or run.
RUNTIME_ERRORS = (
    runtime_state.Fail,
    runtime_state.InvalidArgument,
    runtime_state.InvalidGraph,
    runtime_state.InvalidProtobuf,
    runtime_state.NotImplemented,
    runtime_state.RuntimeException,
)
INTEGER_TYPES = ("tensor(int8)", "tensor(uint8)")

# What goes wrong is raised; ONNX Runtime would log it as well.
_FATAL_ONLY = 4
_QDQ_KEY, _QDQ = "lutterfly.qdq", "1"
#: The first IR version in which an initializer need not be an input.
FREE_INITIALIZERS = 4
_FLOAT_WINDOWS = ("Conv", "FusedConv", "AveragePool", "GlobalAveragePool")
INTEGER_PRODUCTS = ("QLinearConv", "QGemm", "QLinearMatMul")
_PRODUCTS = ("Conv", "Gemm", "MatMul", "QGemm")
#: Without VNNI the kernels for uint8 activations add pairs of products in 16 bits, and saturate, unless this is set.
#: Those for int8 activations never do, and have no kernel for the weights that it would make.
_EXACT_SUMS = "session.x64quantprecision"


def silence_others() -> None:
    """Have sessions that libraries open in this process log nothing, as the reference's own: what goes wrong is raised.

    There is no way to do so for a while, so this is for commands, not for functions that others call.
    """
    onnxruntime.set_default_logger_severity(_FATAL_ONLY)


@functools.cache
def probe() -> str | None:
    """Say why this processor is no reference for ONNX Runtime's bytes, or None if it is one.

    The kernels that the numerics describe need x86-64 with AVX2 and FMA; others saturate, or round differently.
    """
    machine = platform.machine().lower()
    if machine not in ("x86_64", "amd64"):
        return f"ONNX Runtime's bytes are defined on x86-64 processors, and this one is {machine}"
    cpu_info = Path("/proc/cpuinfo")
    if not cpu_info.exists():
        return f"the processor's features cannot be read: {cpu_info} is missing"
    features: set[str] = set()
    for line in cpu_info.read_text().splitlines():
        if line.startswith("flags"):
            features = set(line.partition(":")[2].split())
            break
    missing = [name for name in ("avx2", "fma") if name not in features]
    return f"the processor lacks {', '.join(missing)}, with which ONNX Runtime's bytes are defined" if missing else None


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a caller must give; exporters of IR version 3 list every initializer among them."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in initializers]


def keep_inputs(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Take all other inputs out of a model's list: they are initializers, and constants from then on."""
    kept = [value for value in model.graph.input if value.name in names]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, FREE_INITIALIZERS)


def is_qdq(model: onnx.ModelProto) -> bool:
    """Whether a model has the QDQ form: convolutions and matrix products work on dequantised weights, or, where it has
    none, no operator works on codes with scales of its own.

    A part that was cut out of a model says itself which form that has, see :func:`mark_form`.
    """
    for entry in model.metadata_props:
        if entry.key == _QDQ_KEY:
            return entry.value == _QDQ
    operators = {node.op_type for node in model.graph.node}
    if not any(operator in _PRODUCTS or operator.startswith("QLinear") for operator in operators):
        return "DequantizeLinear" in operators
    dequantised = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return any(node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in dequantised for node in model.graph.node)


def mark_form(part: onnx.ModelProto, *, qdq: bool) -> None:
    """Note in a part of a model which form the model has: ONNX Runtime must treat it as it treats the model."""
    part.metadata_props.add(key=_QDQ_KEY, value=_QDQ if qdq else "")


def session_options(*, qdq: bool) -> onnxruntime.SessionOptions:
    """Options that define the reference: all optimisations; int8 activations in QDQ form are fused as uint8 ones."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    if qdq:
        options.add_session_config_entry("session.qdqisint8allowed", "1")
    return options


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


def has_unsigned(model: onnx.ModelProto) -> bool:
    """Whether some activations are uint8: their zero points are, since weights are int8."""
    written = [attribute.t for node in model.graph.node if node.op_type == "Constant" for attribute in node.attribute]
    return any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in [*model.graph.initializer, *written])


def _shareless(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, as it can be opened where its sums must be exact."""
    return own_zero_points(model) if has_unsigned(model) else model


def _prepared(model: bytes) -> tuple[bytes, onnxruntime.SessionOptions]:
    """A serialised model as the reference opens it, and the options."""
    loaded = onnx.load_from_string(model)
    shareless = _shareless(loaded)
    return model if shareless is loaded else shareless.SerializeToString(), _reference_options(shareless)


def open_session(model: bytes, options: onnxruntime.SessionOptions | None = None) -> onnxruntime.InferenceSession:
    """Open a serialised model, or a part cut from one, as the reference does; ``options`` replaces the reference's."""
    if options is None:
        model, options = _prepared(model)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


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
        open_session(model.SerializeToString(), options)
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


def expose(model: onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """A copy of the model with ``names`` as further outputs; ONNX Runtime infers their types."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    present = {value.name for value in exposed.graph.output}
    exposed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in present)
    return exposed


def computed_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of everything that the nodes of the model compute, in order."""
    return [name for node in model.graph.node for name in node.output if name]


def plain_session(model: onnx.ModelProto, *, threads: int = 0) -> onnxruntime.InferenceSession:
    """Open a model without any optimisation: every node is computed as the file says, and every output has a type.

    ``threads`` is how many compute one operator, by default as many as the processor has cores.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return open_session(model.SerializeToString(), options)


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


def activation_names(model: onnx.ModelProto) -> list[str]:
    """Names of the int8 and uint8 tensors that nodes compute from the model's inputs, in order."""
    dynamic = {value.name for value in model_inputs(model)}
    for node in model.graph.node:
        if dynamic & set(node.input):
            dynamic |= set(node.output)
    types = {value.name: value.type for value in plain_session(expose(model, computed_tensors(model))).get_outputs()}
    return [name for name in computed_tensors(model) if name in dynamic and types[name] in INTEGER_TYPES]


class Reference:
    """A model in ONNX Runtime that shows its integer tensors.

    Its outputs are those of the plain model, as a user runs it. The tensors in between are those of the graph that ONNX
    Runtime executes, see :func:`executed_model`; showing them changes nothing in it.

    Parameters
    ----------
    model : bytes
        The ONNX model as the user gave it.

    Attributes
    ----------
    output_names : list of str
        The model's own outputs.
    random : set of str
        What random numbers decide, of its outputs and of what it shows: they differ from run to run.
    """

    def __init__(self, model: bytes):
        loaded = onnx.load_from_string(model)
        self.output_names = [value.name for value in loaded.graph.output]
        self._inputs = {value.name for value in model_inputs(loaded)}
        self._plain = open_session(model)
        executed = executed_model(loaded, exact_sums=True)
        self._exposed_names = [name for name in activation_names(executed) if name not in self.output_names]
        self._uncertain = _behind_float_windows(executed)
        self.random = random_tensors(loaded) | random_tensors(executed)
        self._exposed = plain_session(expose(executed, self._exposed_names))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference.

        Parameters
        ----------
        feeds : mapping of str to array
            The model's inputs.

        Returns
        -------
        dict of str to array
            The model's outputs and every int8 or uint8 tensor by name, inputs included. Where the two sessions differ
            in an output, which float convolutions can cause, tensors behind such ones are left out: they are not the
            plain model's for certain.
        """
        outputs = dict(zip(self.output_names, self._plain.run(self.output_names, dict(feeds)), strict=True))
        names = [*self.output_names, *self._exposed_names]
        shown = dict(zip(names, self._exposed.run(names, dict(feeds)), strict=True))
        inputs = {name: feeds[name] for name in self._inputs if feeds[name].dtype in (np.int8, np.uint8)}
        certain = outputs.keys() - self.random
        if any(contents(outputs[name]) != contents(shown[name]) for name in certain):
            shown = {name: value for name, value in shown.items() if name not in self._uncertain}
        return inputs | shown | outputs


def _behind_float_windows(executed: onnx.ModelProto) -> set[str]:
    """The tensors that depend on a float convolution or average: ONNX Runtime's last level changes its layout."""
    found: set[str] = set()
    for node in executed.graph.node:
        if node.op_type in _FLOAT_WINDOWS or found & set(node.input):
            found |= set(node.output)
    return found


@functools.lru_cache(maxsize=8)
def reference(model: bytes) -> Reference:
    """The :class:`Reference` of a model; the last few are kept open."""
    return Reference(model)


def run(model: bytes, feeds: Mapping[str, np.ndarray], outputs: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Run one inference in ONNX Runtime, see :meth:`Reference.run`; ``outputs`` selects tensors, by default all."""
    values = reference(model).run(feeds)
    return values if outputs is None else {name: values[name] for name in outputs}
