"""Export of a model with fast pointwise convolutions as a quantised ONNX file that plain ONNX Runtime runs."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import NodeProto, helper, numpy_helper
from torch import nn

from ..host.fpc_function import NAME, add_function, make_call, make_function
from ..host.quantize import quantize
from .holes import Holes
from .layer import FastPointwiseConv2d
from .sparse import SparseConv2d

_OPSET = 18


def export_onnx(
    model: nn.Module, samples: np.ndarray, *, input_name: str = "input", output_name: str = "output"
) -> bytes:
    """Quantise a model to int8 and write it as ONNX, its fast pointwise convolutions and binary layers as functions.

    They compute there, bit for bit, what they compute in PyTorch on the same numbers; real numbers that a binary layer
    gives are rounded to codes behind it. Everything else is quantised as ``lutterfly quantize`` does.

    Parameters
    ----------
    model : nn.Module
        With one input and one output; its fast pointwise convolutions in fixed point, see :func:`.calibrate`.
    samples : float32[samples, ...]
        Typical inputs, to calibrate everything else on.
    input_name, output_name : str

    Returns
    -------
    bytes
        The ONNX file; its batch is dynamic.

    Raises
    ------
    ValueError
        If a fast pointwise convolution is still in float, one or a binary layer is not called exactly once, or what
        ``quantize`` refuses.
    """
    layers = _layers(model)
    dense = copy.deepcopy(model).eval()
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(dense.get_submodule(parent), own, _dense_twin(layer))
    for module in dense.modules():
        if isinstance(module, SparseConv2d):
            module.clear_unconnected()
    holes = Holes(dense, samples)
    feeds = {input_name: samples} | holes.results
    exported = _export(holes.opened, feeds, [output_name, *holes.entering])
    calls = _calls(exported, layers, holes.prefix)
    known = _known_scales(exported, calls) | holes.scales
    quantised = onnx.load_from_string(quantize(exported.SerializeToString(), feeds, overrides=known))
    holes.fill(quantised)
    for number, (node_name, (name, layer)) in enumerate(calls.items(), 1):
        _put(quantised, node_name, name, layer, NAME if len(calls) == 1 else f"{NAME}_{number}")
    _shorten(quantised)
    _sort(quantised)
    _drop_unused(quantised)
    onnx.checker.check_model(quantised)
    return quantised.SerializeToString()


def _layers(model: nn.Module) -> dict[str, FastPointwiseConv2d]:
    """The fast pointwise convolutions of a model by name, each in one place and in fixed point."""
    modules = model.named_modules(remove_duplicate=False)
    layers = {name: module for name, module in modules if isinstance(module, FastPointwiseConv2d)}
    for name, layer in layers.items():
        places = [other for other in layers if layers[other] is layer]
        if len(places) > 1:
            raise ValueError(
                f"{name} must have one place in the model, not {', '.join(places)}; give each its own layer"
            )
        if layer.fixed_point is None:
            raise ValueError(f"{name} must be in fixed point; call calibrate")
    return layers


#: Name and layer by the name of the node that its dense twin became.
_Calls = dict[str, tuple[str, FastPointwiseConv2d]]


def _calls(exported: onnx.ModelProto, layers: Mapping[str, FastPointwiseConv2d], prefix: str) -> _Calls:
    found: _Calls = {}
    for name, layer in layers.items():
        weight = f"{prefix}{name}.0.weight"
        nodes = [node for node in exported.graph.node if node.op_type == "Conv" and node.input[1] == weight]
        if len(nodes) != 1:
            raise ValueError(
                f"{name} must be called once by the model, not {len(nodes)} times; give each call its own layer"
            )
        found[nodes[0].name] = name, layer
    return found


def _known_scales(exported: onnx.ModelProto, calls: _Calls) -> dict[str, tuple[float, int]]:
    """Scale and zero point of what the layers read and give."""
    known = {}
    for node in exported.graph.node:
        if node.name in calls:
            _, layer = calls[node.name]
            settings, output = layer.fixed_point, node.output[0]
            if layer.relu:
                output = next(other.output[0] for other in exported.graph.node if output in other.input)
            known[node.input[0]] = settings.input_scale, settings.input_zero_point
            known[output] = settings.output_scale, settings.output_zero_point
    return known


def _dense_twin(layer: FastPointwiseConv2d) -> nn.Module:
    """What a layer is in float."""
    convolution = nn.Conv2d(layer.pattern.inputs, layer.pattern.outputs, 1)
    with torch.no_grad():
        convolution.weight.copy_(layer.dense_weight())
        convolution.bias.copy_(torch.zeros_like(layer.gain) if layer.bias is None else layer.bias)
    return nn.Sequential(convolution, *([nn.ReLU()] if layer.relu else []))


def _export(model: nn.Module, feeds: Mapping[str, np.ndarray], outputs: list[str]) -> onnx.ModelProto:
    # Of a single sample the exporter takes the batch for fixed.
    arguments = tuple(torch.from_numpy(np.concatenate([array[:1], array[:1]])) for array in feeds.values())
    batch = {0: torch.export.Dim("batch")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "float.onnx"
        torch.onnx.export(
            model,
            arguments,
            path,
            dynamo=True,
            external_data=False,
            verbose=False,
            opset_version=_OPSET,
            input_names=list(feeds),
            output_names=outputs,
            dynamic_shapes=(batch, (batch,) * (len(feeds) - 1))[: len(feeds)],
        )
        exported = onnx.load(path)
    # Without the stack traces that torch puts in.
    graph = exported.graph
    for item in (exported, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        item.ClearField("metadata_props")
    return exported


def _put(model: onnx.ModelProto, node_name: str, name: str, layer: FastPointwiseConv2d, function_name: str) -> None:
    """Put QuantizeLinear, the function and DequantizeLinear in place of a dense convolution and its ReLU."""
    settings, graph = layer.fixed_point, model.graph
    at, node = next((at, node) for at, node in enumerate(graph.node) if node.name == node_name)
    output = node.output[0]
    relu = next((other for other in graph.node if other.op_type == "Relu" and other.input[0] == output), None)
    if layer.relu and relu is not None:
        output = relu.output[0]
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    function = make_function(
        layer.stages(settings), layer.finish(settings), settings.input_zero_point, name=function_name, opset=version
    )
    add_function(model, function)
    operands = {}
    for kind, scale, zero in (
        ("input", settings.input_scale, settings.input_zero_point),
        ("output", settings.output_scale, settings.output_zero_point),
    ):
        operands[kind] = [f"{name}.{kind}_scale", f"{name}.{kind}_zero_point"]
        for operand, value in zip(operands[kind], (np.float32(scale), np.int8(zero)), strict=True):
            graph.initializer.append(numpy_helper.from_array(np.asarray(value), operand))
    codes, result = f"{name}.codes", f"{name}.result"
    nodes = [
        helper.make_node("QuantizeLinear", [node.input[0], *operands["input"]], [codes], f"{name}.quantise"),
        make_call(function, codes, result, name),
        helper.make_node("DequantizeLinear", [result, *operands["output"]], [output], f"{name}.dequantise"),
    ]
    kept = [other for other in graph.node if other is not node and not (layer.relu and other is relu)]
    del graph.node[:]
    graph.node.extend([*kept[:at], *nodes, *kept[at:]])


def _shorten(model: onnx.ModelProto) -> None:
    """Take the codes themselves where DequantizeLinear and a QuantizeLinear of the same numbers follow one another."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    producer = {node.output[0]: node for node in model.graph.node}
    same: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            before = producer.get(node.input[0])
            while before is not None and before.op_type == "Identity":
                before = producer.get(before.input[0])
            if (
                before is not None
                and before.op_type == "DequantizeLinear"
                and _numbers(before, constants) == _numbers(node, constants)
            ):
                same[node.output[0]] = same.get(before.input[0], before.input[0])
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]


def _numbers(node: NodeProto, constants: Mapping[str, np.ndarray]) -> list[bytes]:
    return [constants[name].tobytes() for name in node.input[1:]]


def _sort(model: onnx.ModelProto) -> None:
    """Put every node behind those whose results it reads."""
    known = {value.name for value in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
    waiting, ordered = list(model.graph.node), []
    while waiting:
        ready = [node for node in waiting if known.issuperset(filter(None, node.input))]
        assert ready, [node.name for node in waiting]
        ordered += ready
        known |= {name for node in ready for name in node.output}
        waiting = [node for node in waiting if not known.issuperset(node.output)]
    del model.graph.node[:]
    model.graph.node.extend(ordered)


def _drop_unused(model: onnx.ModelProto) -> None:
    needed, kept = {value.name for value in model.graph.output}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept[::-1])
    constants = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    del model.graph.initializer[:]
    model.graph.initializer.extend(constants)
    del model.graph.value_info[:]
