"""Fast pointwise convolutions: functions of the model, recognised by their bodies, kept whole, and lowered to layers.

ONNX Runtime inlines functions, and may then move or merge what is left of them. What becomes of the rest of the network
does not depend on that: both ends of such a function are codes, and its body rounds nothing where float32 does. So a
quantised product of the same shapes stands in for each call while ONNX Runtime makes the graph that it executes, and
the call stands there again in that graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, helper, inliner, numpy_helper

from ..fpc_function import NAME
from ..graph import FastPointwise
from ..onnx_function import DOMAIN, VERSION
from ..reference import mark_form
from .build import Build, image_place
from .checks import check_layers
from .errors import ModelError, UnsupportedError
from .fpc_body import BodyError, FastPointwiseBody, read_body
from .fragments import Fragment, label
from .layout import CHANNELS_FIRST, CHANNELS_LAST, Place
from .parse import name_nodes
from .source import Source, fix_batch, measure

Functions = dict[tuple[str, str], FastPointwiseBody]


@dataclass(frozen=True)
class _Call:
    """A node of the user's, and the name of its stand-in's weights."""

    node: NodeProto
    weights: str


def find_functions(source: Source) -> Functions:
    """Fast pointwise convolutions among the functions that the model calls, whatever their names.

    Raises
    ------
    ModelError
        If one is called a fast pointwise convolution, and has another body.
    """
    nodes = [*source.model.graph.node, *(node for function in source.model.functions for node in function.node)]
    called = {(node.domain, node.op_type): node for node in nodes}
    found: Functions = {}
    for function in source.model.functions:
        key = function.domain, function.name
        if key not in called:
            continue
        try:
            found[key] = read_body(function)
        except BodyError as error:
            if function.domain == DOMAIN or function.name.startswith(NAME):
                raise ModelError(
                    f"{source.name}: function {'.'.join(key)} of {called[key].name!r} must have the body of a fast "
                    f"pointwise convolution, and has another: {error}; write it as docs/fpc.md says, or call it "
                    "otherwise to have its operators taken one by one"
                ) from error
    return found


def stand_in(source: Source, functions: Functions) -> tuple[onnx.ModelProto, list[_Call]]:
    """The model with a quantised product in place of each fast pointwise convolution, and what they stand for.

    Raises
    ------
    ModelError
        If one reads anything but int8 codes with its channels at axis 1.
    """
    if not functions:
        return source.model, []
    model = _unfolded(source.model, functions)
    name_nodes(model)
    measured = onnx.ModelProto()
    measured.CopyFrom(model)
    shown = Source(source.name, measured, source.data, source.qdq)
    fix_batch(shown)
    measure(shown)
    calls = []
    for node in model.graph.node:
        body = functions.get((node.domain, node.op_type))
        if body is None or node.input[0] not in shown.shapes:
            continue
        _check_input(shown, node, body)
        call = NodeProto()
        call.CopyFrom(node)
        calls.append(_Call(call, f"stand-in for {node.output[0]}"))
        _replace(model, node, calls[-1].weights, body, len(shown.shapes[node.input[0]]))
    # ONNX Runtime must go on treating the others as it treats the model.
    mark_form(model, qdq=source.qdq)
    return model, calls


def _unfolded(model: onnx.ModelProto, functions: Functions) -> onnx.ModelProto:
    """The model with every call in the graph itself: functions that call fast pointwise convolutions are inlined."""
    others = [function for function in model.functions if (function.domain, function.name) not in functions]
    if any((node.domain, node.op_type) in functions for function in others for node in function.node):
        return inliner.inline_selected_functions(model, list(functions), exclude=True)
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


def _check_input(source: Source, node: NodeProto, body: FastPointwiseBody) -> None:
    name = node.input[0]
    shape, dtype = source.shapes[name], source.types[name]
    if dtype != np.int8:
        raise ModelError(
            f"{source.name}: {label(node)} must read int8 codes, and {name!r} is {dtype}; quantise with "
            "activation_type=QuantType.QInt8"
        )
    spatial = len(shape) - 2
    if shape[1] != body.stages.pattern.inputs or body.spatial not in (None, spatial):
        wanted = f"[batch, {body.stages.pattern.inputs}" + ", ..." * (body.spatial != 0) + "]"
        raise ModelError(
            f"{source.name}: {label(node)} must read a tensor of the shape {wanted} with "
            f"{'any number of' if body.spatial is None else body.spatial} dimensions behind its channels, and "
            f"{name!r} has the shape {list(shape)}; write the function for it"
        )


def _replace(model: onnx.ModelProto, node: NodeProto, weights: str, body: FastPointwiseBody, rank: int) -> None:
    """Make a node the quantised product of its shapes."""
    pattern, scale, zero = body.stages.pattern, f"{weights} (scale)", f"{weights} (zero point)"
    matrix = np.zeros((pattern.outputs, pattern.inputs), np.int8)
    kernel = matrix.reshape(*matrix.shape, *[1] * (rank - 2)) if rank > 2 else matrix.T
    values = ((weights, kernel), (scale, np.float32(1)), (zero, np.int8(0)))
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in values)
    node.op_type, node.domain = ("QLinearConv" if rank > 2 else "QLinearMatMul"), ""
    node.input.extend([scale, zero, weights, scale, zero, scale, zero])


def put_back(given: onnx.ModelProto, model: onnx.ModelProto, calls: list[_Call]) -> None:
    """Put the calls into the graph that ONNX Runtime executes, where their stand-ins are.

    Parameters
    ----------
    given : ModelProto
        The model with the functions.
    model : ModelProto
        That graph.
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
    # ONNX Runtime may have given others, which have the same ones, the scale and the zero point of a stand-in.
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
    known = {entry.domain for entry in model.opset_import}
    for domain in sorted({domain for domain, _ in called} - known):
        model.opset_import.append(helper.make_opsetid(domain, VERSION))


def lower_fast_pointwise(build: Build, fragment: Fragment) -> None:
    """Add the layer of a fast pointwise convolution.

    Raises
    ------
    UnsupportedError
        If its values do not lie as it wants them, or its bytes are not ONNX Runtime's.
    """
    node, start, end = fragment.main, fragment.inputs[0], fragment.outputs[0]
    body, place = build.source.function(node), build.places[start]
    place = Place(place.tensor, place.axes, build.source.shapes[start])
    pattern, first_layer = body.stages.pattern, len(build.graph.layers)
    if len(place.shape) > 2:
        shape, axes = image_place(build, node, place), CHANNELS_FIRST
    else:
        shape, axes = build.shape_of(place), CHANNELS_LAST
        if shape != (1, 1, pattern.inputs):
            raise UnsupportedError(
                f"{label(node)} reads {shape[0]}x{shape[1]} pixels as the channels of a single one",
                "pool it to one pixel before",
            )
    build.add_tensor(end, (*shape[:2], pattern.outputs), end)
    build.graph.layers.append(
        FastPointwise(
            node.name,
            (place.tensor,),
            end,
            stages=body.stages,
            finish=body.finish,
            zero_point=body.zero_point,
            requantised=end,
        )
    )
    build.add_view(end, Place(end, axes, build.source.shapes[end]))
    check_layers(build, fragment, first_layer)
