"""Export of a model with fast pointwise convolutions as a quantised ONNX file that plain ONNX Runtime runs."""

from __future__ import annotations

import ast
import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import NodeProto, helper
from torch import nn

from ...host.model.onnx_graph import OnnxGraph, set_nodes
from ...host.quantize.float_model import drop_unread
from ...host.quantize.static_quantisation import quantize
from ..layers.sparse import SparseConv2d
from .comparison import compare
from .exported import FloatFile
from .holes import Holes

_OPSET = 18
#: Key of a node's metadata.
_SCOPES = "pkg.torch.onnx.name_scopes"


def export_onnx(
    model: nn.Module, samples: np.ndarray, *, input_name: str = "input", output_name: str = "output"
) -> bytes:
    """Quantise a model to int8 and write it as ONNX, its fast pointwise convolutions and binary layers as functions.

    They give the same bits there as in PyTorch for the same numbers; real results of a binary layer are rounded to
    codes after it. All other layers are quantised as ``lutterfly quantize`` does. The file is compared with the model
    on the
    samples, layer by layer, see :func:`.compare`.

    Parameters
    ----------
    model : nn.Module
        A model with one input and one output; its fast pointwise convolutions are in fixed point, see
        :func:`.calibrate`.
    samples : float32[samples, ...]
        Typical inputs, for the calibration of other layers.
    input_name, output_name : str

    Returns
    -------
    bytes
        The ONNX file; its batch is dynamic.

    Raises
    ------
    ValueError
        If a fast pointwise convolution is still in float, one or a binary layer is not called exactly once, the file
        differs from the model by more than rounding explains, or ``quantize`` refuses the model.
    """
    dense = copy.deepcopy(model).eval()
    for module in dense.modules():
        if isinstance(module, SparseConv2d):
            module.clear_unconnected()
    holes = Holes(dense, samples)
    feeds = {input_name: samples} | holes.results
    exported, modules = _export(holes.opened, feeds, [output_name, *holes.entering], holes.depth)
    known = {name: (scale.step, scale.zero_point) for name, scale in holes.scales(exported).items()}
    quantised = onnx.load_from_string(quantize(exported.SerializeToString(), feeds, overrides=known))
    scales = holes.fill(quantised)
    _drop_identities(quantised)
    _shorten(quantised)
    _sort(quantised)
    _drop_unused(quantised)
    onnx.checker.check_model(quantised)
    ends = (dict(zip(holes.layers, names, strict=True)) for names in (holes.results, holes.entering))
    functions = {name: (holes.functions[name], scale) for name, scale in scales.items()}
    compare(model, FloatFile(exported, *ends, modules), quantised, functions, samples)
    return quantised.SerializeToString()


def _export(
    model: nn.Module, feeds: Mapping[str, np.ndarray], outputs: list[str], depth: int
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Export the float file; return it, and the innermost modules that compute its tensors, by name."""
    # With a single sample the exporter would fix the batch.
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
    graph = exported.graph
    modules = {name: _module(node, depth) for node in graph.node for name in node.output}
    # This removes the stack traces that torch stores.
    for item in (exported, graph, *graph.node, *graph.value_info, *graph.input, *graph.output):
        item.ClearField("metadata_props")
    return exported, modules


def _module(node: NodeProto, depth: int) -> str:
    """Return the innermost module of a node from torch's metadata, a list from the outermost module to the operator."""
    noted = next((entry.value for entry in node.metadata_props if entry.key == _SCOPES), "[]")
    *_, module, _ = ["", "", *ast.literal_eval(noted)]
    return ".".join(module.split(".")[depth:])


def _drop_identities(model: onnx.ModelProto) -> None:
    """Remove every Identity, with which an exporter gives one tensor several names."""
    ends = {value.name for value in model.graph.output}
    kept, same = [], {}
    for node in model.graph.node:
        if node.op_type == "Identity":
            same[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    first = {name: name for node in kept for name in [*node.input, *node.output]}
    for name, source in same.items():
        root = source
        while root in same:
            root = same[root]
        first[name] = root
    inputs = {value.name for value in model.graph.input}
    for name in ends & set(same):
        # An output keeps its name, unless it is an input or another output as well.
        source = first[name]
        if source in inputs | ends:
            kept.append(helper.make_node("Identity", [source], [name], name))
        else:
            first = {one: name if other == source else other for one, other in first.items()}
    for node in kept:
        node.input[:] = [first.get(name, name) for name in node.input]
        if node.op_type != "Identity":
            node.output[:] = [first.get(name, name) for name in node.output]
    set_nodes(model.graph, kept)


def _shorten(model: onnx.ModelProto) -> None:
    """Remove a DequantizeLinear and a QuantizeLinear of the same parameters after it, which give the codes
    themselves."""
    graph = OnnxGraph.of(model)
    same: dict[str, str] = {}
    for node in graph.nodes:
        if node.op_type == "QuantizeLinear":
            before = graph.producer.get(node.input[0])
            if (
                before is not None
                and before.op_type == "DequantizeLinear"
                and _numbers(before, graph.constants) == _numbers(node, graph.constants)
            ):
                same[node.output[0]] = same.get(before.input[0], before.input[0])
    for node in model.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]


def _numbers(node: NodeProto, constants: Mapping[str, np.ndarray]) -> list[bytes]:
    return [constants[name].tobytes() for name in node.input[1:]]


def _sort(model: onnx.ModelProto) -> None:
    """Put every node after those whose results it reads."""
    known = {value.name for value in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
    waiting, ordered = list(model.graph.node), []
    while waiting:
        ready = [node for node in waiting if known.issuperset(filter(None, node.input))]
        assert ready, [node.name for node in waiting]
        ordered += ready
        known |= {name for node in ready for name in node.output}
        waiting = [node for node in waiting if not known.issuperset(node.output)]
    set_nodes(model.graph, ordered)


def _drop_unused(model: onnx.ModelProto) -> None:
    needed, kept = {value.name for value in model.graph.output}, []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            needed |= set(node.input)
            kept.append(node)
    set_nodes(model.graph, kept[::-1])
    drop_unread(model)
    del model.graph.value_info[:]
