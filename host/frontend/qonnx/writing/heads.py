"""Products whose results the model gives in float: the accelerator counts, and the host scales what it counted."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ...fragments.integer import MOST_RESULTS
from ..reading.network import Network
from ..reading.product import PRODUCTS, Product
from .writer import Writer

#: From the least code to the greatest.
_STEPS = 255


def float_results(network: Network) -> set[str]:
    """The tensors that outputs of the model are computed from with no quantiser between."""
    frontier, found = [value.name for value in network.model.graph.output], set()
    while frontier:
        name = frontier.pop()
        if name in found:
            continue
        found.add(name)
        node = network.producer.get(name)
        if node is not None and name not in network.quantisers:
            frontier += network.dynamic_inputs(node)
    return found & {node.output[0] for node in network.nodes if node.op_type in PRODUCTS}


def can_count(product: Product) -> bool:
    """Whether the accelerator's codes say what the sums of a product are."""
    return product.is_exclusive_or and _results_of(product)[2] <= MOST_RESULTS


def _results_of(product: Product) -> tuple[int, int, int]:
    """The least sum, the step from one to the next, and the codes that one sum takes."""
    sums = product.sums()
    step = int(np.diff(sums).min()) if len(sums) > 1 else 1
    return int(sums[0]), step, max(-(-int(sums[-1] - sums[0]) // (step * _STEPS)), 1)


def write_counted(writer: Writer, network: Network, product: Product) -> None:
    """A product of binary values as codes that add up to its sums, and its results from them in float.

    A sum p that is at least l and rises by steps of d is

        l + d * (sum of clip((p - l) / d - 255 * i, 0, 255) for i in range(n))

    and each term is what a binary convolution gives: :mod:`.integer` writes integer products in the same way.
    """
    node, outputs = product.node, product.outputs
    least, step, count = _results_of(product)
    name = node.output[0]
    bias = np.repeat(np.full(outputs, -least)[:, None] - _STEPS * step * np.arange(count), 1, axis=1).reshape(-1)
    parts: dict[str, object] = {}
    if product.window is not None:
        window = product.window
        parts = {"pads": window.pads, "strides": window.stride, "dilations": window.dilation, "pad_value": 0}
    codes = writer.call_binary(
        product.source.codes,
        writer.name(f"{name} codes"),
        node.name,
        np.repeat(product.weights, count, axis=0),
        bias=bias.astype(np.int32),
        scale=np.full(outputs * count, 1 / step, np.float32),
        zero_point=-128,
        **parts,
    )

    def add(operator: str, kind: str, *inputs: str, **attributes: object) -> str:
        return writer.add(operator, list(inputs), writer.name(f"{name} {kind}"), f"{node.name} {kind}", **attributes)

    numbers = add("Cast", "numbers", codes, to=TensorProto.FLOAT)
    spatial = len(network.shapes[name]) - 2
    if count > 1:
        shape = writer.constant(f"{name} parts", [0, outputs, count, *network.shapes[name][2:]], np.int64)
        split = add("Reshape", "split", numbers, shape)
        numbers = add("ReduceSum", "added", split, writer.constant(f"{name} axis", [2], np.int64), keepdims=0)
    doubled = add("Mul", "steps", numbers, writer.constant(f"{name} step", step))
    sums = add("Add", "sums", doubled, writer.constant(f"{name} least", least + 128 * count * step))

    def channels(kind: str, values: np.ndarray) -> str:
        return writer.constant(f"{name} {kind}", values.reshape(-1, *[1] * spatial))

    scale = channels("scale", product.real_scale.astype(np.float32))
    last = "Mul" if product.bias is None else "Add"
    if product.bias is not None:
        sums = add("Mul", "scaled", sums, scale)
        scale = channels("bias", product.bias)
    writer.add(last, [sums, scale], name, f"{node.name} results")
