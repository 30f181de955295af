"""The model's functions that are layers, recognised by their bodies and kept whole.

ONNX Runtime inlines functions, and may then move or merge their nodes. The rest of the network does not depend on that:
both ends of such a function are codes, and its body is exact in float32. So a quantised product of the same shapes
stands in for each call while ONNX Runtime optimises the graph, and the call replaces it in the optimised graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import FunctionProto, NodeProto, helper, inliner, numpy_helper

from ...model.executed import executed_model
from ...model.functions import binary_function, fpc_function
from ...model.functions.onnx_function import DOMAIN, VERSION
from ...model.model_graph import mark_form
from ...model.onnx_graph import import_operators
from ...model.runtime import RUNTIME_ERRORS
from ..fragments import label, note_written
from ..parse import fix_batch, measure, name_nodes
from ..source import LayerBody, ModelError, Source
from . import binary_body, fpc_body
from .body import BodyError

Functions = dict[tuple[str, str], LayerBody]


@dataclass(frozen=True)
class _Kind:
    """A kind of layer: its title, the prefix of its functions' names, their manual page and their reader."""

    title: str
    name: str
    manual: str
    read: Callable[[FunctionProto], LayerBody]


_KINDS = (
    _Kind("fast pointwise convolution", fpc_function.NAME, "docs/fpc.md", fpc_body.read_body),
    _Kind("binary convolution", binary_function.NAME, "docs/binary.md", binary_body.read_body),
)


@dataclass(frozen=True)
class _Call:
    """A node of the user's model, and the name of its stand-in's weights."""

    node: NodeProto
    weights: str


def find_functions(source: Source) -> Functions:
    """Return the layers among the functions that the model calls, whatever their names.

    Raises
    ------
    ModelError
        If one has the name of a kind of layer, but another body.
    """
    nodes = [*source.model.graph.node, *(node for function in source.model.functions for node in function.node)]
    called = {(node.domain, node.op_type): node for node in nodes}
    found: Functions = {}
    for function in source.model.functions:
        key = function.domain, function.name
        if key in called:
            body = _read(source, function, called[key].name)
            found |= {} if body is None else {key: body}
    return found


def _read(source: Source, function: FunctionProto, caller: str) -> LayerBody | None:
    """Return the body of a layer; None for a function that is none and does not have the name of one."""
    differences: dict[_Kind, BodyError] = {}
    for kind in _KINDS:
        try:
            return kind.read(function)
        except BodyError as error:
            differences[kind] = error
    meant = [kind for kind in _KINDS if function.name.startswith(kind.name)]
    if not meant and function.domain != DOMAIN:
        return None
    meant = meant or list(_KINDS)
    titles, manuals = (" or ".join(getattr(kind, name) for kind in meant) for name in ("title", "manual"))
    differing = "; ".join(
        f"{kind.title}: {differences[kind]}" if len(meant) > 1 else str(differences[kind]) for kind in meant
    )
    raise ModelError(
        f"{source.name}: function {function.domain}.{function.name} of {caller!r} must have the body of a {titles}, "
        f"and has another: {differing}; write it as {manuals} says, or call it otherwise to have its operators taken "
        "one by one"
    )


def stand_in(source: Source, functions: Functions) -> tuple[onnx.ModelProto, list[_Call]]:
    """Return the model with a quantised product in place of each of these layers, and the calls that they stand for.

    Raises
    ------
    ModelError
        If one reads other tensors than int8 codes with channels at axis 1.
    """
    if not functions:
        return source.model, []
    model = _unfolded(source.model, functions)
    name_nodes(model)
    shown = Source(source.name, copy.deepcopy(model), source.file, source.qdq)
    fix_batch(shown.model)
    measure(shown)
    calls = []
    for node in model.graph.node:
        body = functions.get((node.domain, node.op_type))
        if body is None or node.input[0] not in shown.shapes:
            continue
        _check_input(shown, node, body)
        calls.append(_Call(copy.deepcopy(node), f"stand-in for {node.output[0]}"))
        _replace(model, node, calls[-1].weights, body, len(shown.shapes[node.input[0]]))
    # ONNX Runtime must treat the other nodes as those of the given model.
    mark_form(model, qdq=source.qdq)
    return model, calls


def _unfolded(model: onnx.ModelProto, functions: Functions) -> onnx.ModelProto:
    """Return the model with every call of a layer in the graph itself: functions that call layers are inlined."""
    others = [function for function in model.functions if (function.domain, function.name) not in functions]
    if any((node.domain, node.op_type) in functions for function in others for node in function.node):
        return inliner.inline_selected_functions(model, list(functions), exclude=True)
    return copy.deepcopy(model)


def _check_input(source: Source, node: NodeProto, body: LayerBody) -> None:
    name = node.input[0]
    shape, dtype = source.shapes[name], source.types[name]
    if dtype != np.int8:
        raise ModelError(
            f"{source.name}: {label(node)} must read int8 codes, and {name!r} is {dtype}; quantise with "
            "activation_type=QuantType.QInt8"
        )
    spatial = len(shape) - 2
    if shape[1] != body.inputs or body.spatial not in (None, spatial):
        wanted = f"[batch, {body.inputs}" + ", ..." * (body.spatial != 0) + "]"
        raise ModelError(
            f"{source.name}: {label(node)} must read a tensor of the shape {wanted} with "
            f"{'any number of' if body.spatial is None else body.spatial} dimensions after its channels, and "
            f"{name!r} has the shape {list(shape)}; write the function for it"
        )


def _replace(model: onnx.ModelProto, node: NodeProto, weights: str, body: LayerBody, rank: int) -> None:
    """Turn a node into a quantised product of the same shapes."""
    scale, zero = f"{weights} (scale)", f"{weights} (zero point)"
    matrix = np.zeros((body.outputs, body.inputs), np.int8)
    if rank > 2:
        sizes = body.geometry.kernel or (1,) * (rank - 2)
        kernel = np.zeros((*matrix.shape, *sizes), np.int8)
        node.attribute.extend(helper.make_attribute(*item) for item in body.geometry.attributes.items())
    else:
        kernel = matrix.T
    values = ((weights, kernel), (scale, np.float32(1)), (zero, np.int8(0)))
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in values)
    node.op_type, node.domain = ("QLinearConv" if rank > 2 else "QLinearMatMul"), ""
    node.input.extend([scale, zero, weights, scale, zero, scale, zero])


def put_back(given: onnx.ModelProto, model: onnx.ModelProto, calls: list[_Call]) -> None:
    """Replace the stand-ins by the calls in the graph that ONNX Runtime executes.

    Parameters
    ----------
    given : ModelProto
        The user's model, with the functions.
    model : ModelProto
        The model with the graph that ONNX Runtime executes.
    calls : list of _Call
    """
    if not calls:
        return
    by_weights = {call.weights: call.node for call in calls}
    for node in model.graph.node:
        name = next((name for name in node.input if name in by_weights), None)
        if name is not None:
            call = by_weights[name]
            node.op_type, node.domain = call.op_type, call.domain
            del node.input[1:], node.attribute[:], node.metadata_props[:]
    # Other nodes with the same values may share scale and zero point of a stand-in, by ONNX Runtime's merging.
    read = {name for node in model.graph.node for name in node.input}
    kept = [
        tensor
        for tensor in model.graph.initializer
        if tensor.name in read or not tensor.name.startswith(tuple(by_weights))
    ]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    called = {(call.node.domain, call.node.op_type) for call in calls}
    model.functions.extend(function for function in given.functions if (function.domain, function.name) in called)
    for domain in sorted({domain for domain, _ in called}):
        import_operators(model, domain, VERSION)


# The graph that ONNX Runtime makes of the user's and executes is the one that all later passes work on.


def follow(source: Source) -> Source:
    """Return the model as ONNX Runtime executes it, not yet measured.

    ONNX Runtime moves, merges and drops QuantizeLinear and DequantizeLinear, and fuses operators between them, under
    conditions that involve the whole network. Only in its own graph is every operator computed as it is written, so
    that parts of it give the same results in isolation.

    Functions that are layers stay whole in it, see :mod:`.functions`.

    Raises
    ------
    ModelError
        If ONNX Runtime cannot load the model, or a function is not the layer that its name says.
    """
    functions = find_functions(source)
    given, calls = stand_in(source, functions)
    try:
        model = executed_model(given)
    except RUNTIME_ERRORS as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{source.name}: ONNX Runtime cannot run the model: {reason}") from error
    _restore_names(source.model, model)
    name_nodes(model)
    put_back(source.model, model, calls)
    return Source(source.name, model, source.file, source.qdq, functions=functions)


def _restore_names(given: onnx.ModelProto, model: onnx.ModelProto) -> None:
    """Name every node as the user did, and note the user's operator; a fusion may append its own name."""
    written = {node.name: node.op_type for node in given.graph.node}
    for node in model.graph.node:
        name = node.name
        while name and name not in written:
            name = name.rpartition("/")[0]
        if name:
            node.name = name
            note_written(node, written[name])
