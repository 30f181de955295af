"""Quantisation of outputs within a network that onnxruntime.quantization leaves in float.

A chain of operators that it leaves in float becomes one layer. An output after one of them that moves elements, such
as Slice or DepthToSpace, would need the float values, which the accelerator does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization.quant_utils import compute_scale_zp

from ..frontend.fragments import FLOAT_PRODUCTS, LAYOUT, POINTWISE
from ..model.model_graph import free_name, tensor_names
from ..model.onnx_graph import OnnxGraph, set_nodes
from .ranges import range_override, ranges


def quantise_outputs(
    quantised: onnx.ModelProto,
    prepared: onnx.ModelProto,
    samples: Mapping[str, np.ndarray],
    given: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Quantise outputs that are in float between two products, or the tensors that they are views of.

    Parameters
    ----------
    quantised : ModelProto
        The quantised model, which is changed.
    prepared : ModelProto
        The float model that it was made from.
    samples : mapping of str to array
        Every input by name; the first axis counts samples.
    given : mapping of str to sequence of mapping
        Known quantisation of tensors, in the form of onnxruntime.quantization.
    """
    for value in quantised.graph.output:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            links = _Links(quantised, quantised.graph.node, {})
            source = links.branch(value.name)
            if links.stands_between(source):
                override = given.get(source, [{}])[0]
                if "scale" not in override and "rmin" not in override:
                    ends = ranges(prepared, samples, [source])[source]
                    override = {**range_override(*ends)[0], **override}
                _insert(quantised.graph, links, source, override)


class _Links(OnnxGraph):
    """The nodes of a quantised model, and the quantised tensors around them."""

    def viewed(self, name: str) -> str:
        """Return the tensor of which one is a view in another shape or order."""
        while name in self.producer and self.producer[name].op_type in LAYOUT:
            name = self.producer[name].input[0]
        return name

    def branch(self, name: str) -> str:
        """Return the tensor of which an output is a view, or a function, and that a layer reads as well."""
        found = viewed = self.viewed(name)
        while not self.is_quantised_behind(found) and found in self.producer:
            read = [one for one in self.producer[found].input if one in self.producer]
            if len(read) != 1 or self.producer[found].op_type == "DequantizeLinear":
                return viewed
            found = read[0]
        return self.viewed(found)

    def is_quantised_behind(self, name: str) -> bool:
        """Return whether a quantised tensor is computed from a tensor."""
        return any(node.op_type == "QuantizeLinear" for node in self._below([name], stops=("QuantizeLinear",)))

    def stands_between(self, name: str) -> bool:
        """Return whether a tensor is in float after a product, and shares a move of elements with another reader."""
        if name not in self.producer or self.producer[name].op_type == "DequantizeLinear":
            return False
        above = self._above([name], stops=("DequantizeLinear",))
        # For pointwise operators the frontend makes a table for each result, and the host computes the output in float.
        shared = [output for node in above if node.op_type not in (*POINTWISE, *LAYOUT) for output in node.output]
        ends = [node for node in self._below(shared, stops=("QuantizeLinear",)) if node.op_type == "QuantizeLinear"]
        behind = self._below([output for node in ends for output in node.output])
        return _has_product(self._above([name])) and _has_product(behind)

    def _above(self, names: list[str], stops: Collection[str] = ()) -> list[NodeProto]:
        found: dict[int, NodeProto] = {}
        while names:
            node = self.producer.get(names.pop())
            if node is not None and id(node) not in found:
                found[id(node)] = node
                names += [] if node.op_type in stops else list(node.input)
        return list(found.values())

    def _below(self, names: list[str], stops: Collection[str] = ()) -> list[NodeProto]:
        found: dict[int, NodeProto] = {}
        while names:
            for node in self.readers(names.pop()):
                if id(node) not in found:
                    found[id(node)] = node
                    names += [] if node.op_type in stops else list(node.output)
        return list(found.values())


def _has_product(nodes: Collection[NodeProto]) -> bool:
    return any(node.op_type in FLOAT_PRODUCTS for node in nodes)


def _insert(graph: onnx.GraphProto, links: _Links, source: str, override: Mapping[str, Any]) -> None:
    """Insert QuantizeLinear and DequantizeLinear after the node of a tensor; views of it get its scale."""
    if "scale" in override:
        scale, zero = override["scale"], override["zero_point"]
    else:
        low, high = np.array(-128, np.int8), np.array(127, np.int8)
        is_symmetric = override.get("symmetric", False)
        zero, scale = compute_scale_zp(override["rmin"], override["rmax"], low, high, is_symmetric)
    taken = {*tensor_names(graph)}
    names = {part: free_name(f"{source}_{part}", taken) for part in ("input", "scale", "zero_point", "quantized")}
    for part, array in (("scale", np.float32(scale)), ("zero_point", np.int8(zero))):
        graph.initializer.append(numpy_helper.from_array(np.array(array), names[part]))
    constants = [names["scale"], names["zero_point"]]
    maker = links.producer[source]
    maker.output[:] = [names["input"] if name == source else name for name in maker.output]
    ends = ("QuantizeLinear", names["input"], names["quantized"]), ("DequantizeLinear", names["quantized"], source)
    pair = [helper.make_node(kind, [read, *constants], [made], f"{source}_{kind}") for kind, read, made in ends]
    for node in links.nodes:
        if node.op_type == "QuantizeLinear" and links.viewed(node.input[0]) == source:
            for one in (node, *links.readers(node.output[0])):
                one.input[1:] = constants
    place = next(at for at, node in enumerate(graph.node) if names["input"] in node.output)
    set_nodes(graph, [*graph.node[: place + 1], *pair, *graph.node[place + 1 :]])
