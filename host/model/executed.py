"""The graph that ONNX Runtime executes, and sessions as the reference opens them."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx
import onnxruntime
from onnx import numpy_helper

from .model import Model
from .model_graph import INTEGER_PRODUCTS, has_unsigned, is_qdq, keep_inputs, model_inputs
from .runtime import open_with, session_options
from .zero_points import own_zero_points

#: Without VNNI the kernels for uint8 activations add pairs of products in 16 bits, and saturate, unless this is set.
#: Those for int8 activations never do, and have no kernel for the weights that it would make.
_EXACT_SUMS = "session.x64quantprecision"


@dataclass(frozen=True)
class Prepared:
    """A model as the reference opens it: where activations are uint8, its sums must be exact.

    Attributes
    ----------
    given : Model
        A model, or a part cut from one.
    """

    given: Model = field(repr=False)

    @cached_property
    def model(self) -> Model:
        """What is opened instead: with the weights that the processor needs for exact sums, which may be uint8."""
        return Model.written(own_zero_points(self.given.proto)) if self._is_unsigned else self.given

    @cached_property
    def executed(self) -> onnx.ModelProto:
        """The graph that ONNX Runtime makes of it, see :func:`executed_model`; nobody may change it."""
        return executed_model(self.model.proto, self.options()) if self._needs_exact_sums else self._plainly_executed

    def options(self) -> onnxruntime.SessionOptions:
        """New ones, with which it is opened."""
        options = session_options(qdq=is_qdq(self.model.proto))
        if self._needs_exact_sums:
            options.add_session_config_entry(_EXACT_SUMS, "1")
        return options

    @cached_property
    def _is_unsigned(self) -> bool:
        return has_unsigned(self.given.proto)

    @cached_property
    def _plainly_executed(self) -> onnx.ModelProto:
        return executed_model(self.model.proto)

    @cached_property
    def _needs_exact_sums(self) -> bool:
        """Whether activations are uint8, and no product reads int8 codes, for which there are no kernels then."""
        if not self._is_unsigned:
            return False
        graph = self._plainly_executed.graph
        types = {tensor.name: tensor.data_type for tensor in graph.initializer}
        zeros = {node.input[2] for node in graph.node if node.op_type in INTEGER_PRODUCTS}
        return onnx.TensorProto.INT8 not in {types.get(name) for name in zeros}


def open_session(model: Model) -> onnxruntime.InferenceSession:
    """Open a model, or a part cut from one, as the reference does."""
    prepared = Prepared(model)
    return open_with(prepared.model.data, prepared.options())


def executed_model(model: onnx.ModelProto, options: onnxruntime.SessionOptions | None = None) -> onnx.ModelProto:
    """The graph that ONNX Runtime makes of a model and executes, as it writes it itself under the reference's options.

    Every fusion is done in it: whoever shows more of its tensors, or runs a part of it, opens it with
    :func:`plain_session`, so that ONNX Runtime changes nothing any more. What is missing is its last level, which only
    changes layouts: float convolutions may add up in another order then, no quantised operator does.

    Parameters
    ----------
    model : ModelProto
    options : SessionOptions or None
        Others than those of :func:`session_options`, which are changed.
    """
    options = options or session_options(qdq=is_qdq(model))
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


def open_host_part(part: Model) -> onnxruntime.InferenceSession:
    """Open a head or tail that was cut out of what ONNX Runtime executes.

    It is opened as the reference opens a model, but with every QuantizeLinear and DequantizeLinear where it stands.
    By itself ONNX Runtime would merge what it does not merge in the whole network, where a tensor between two
    quantisations has other readers too; and it would dequantise constant weights beforehand, which other kernels with
    another order of additions multiply then. What can be computed beforehand has been.
    """
    prepared = Prepared(part)
    options = prepared.options()
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(
        prepared.model.data,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["ConstantFolding", "DoubleQDQPairsRemover"],
    )
