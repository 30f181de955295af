"""Quant after the sum of two quantised activations."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ....graph import Int8
from ....graph.tabulate import CODES
from ....model.executed import open_session
from ....model.model import Model
from ....model.runtime import plain_session
from ...fragments.fragments import label
from ...reading.errors import ModelError
from ..reading.chain import Chain, constant_operands
from ..reading.network import Network
from ..reading.product import Coded
from ..reading.quantisers import Quantiser
from .steps import write_step
from .writer import Writer

#: Limits of int8.
FULL = (-128, 127)


def write_sum(
    writer: Writer,
    network: Network,
    quantiser: Quantiser,
    chain: Chain,
    operands: tuple[Coded, Coded],
    scale: np.float32,
) -> Coded:
    """A sum and its quantisation, as ONNX Runtime adds up quantised tensors.

    Raises
    ------
    ModelError
        If more than Relu and layout stand between, or some pair of codes has another sum in QONNX.
    """
    place, name = f"{network.name}: {label(quantiser.node)}", quantiser.node.output[0]
    add = network.producer[chain.root]
    pointwise = [node for node in chain.nodes if node not in chain.steps]
    if quantiser.is_binary or any(node.op_type != "Relu" for node in pointwise):
        raise ModelError(
            f"{place}: the sum {add.name!r} in front of it must be quantised to 8 bits before other operators; put a "
            "QuantIdentity after it"
        )
    zero_point = quantiser.zero_point - quantiser.shift
    low, high = quantiser.least - quantiser.shift, quantiser.greatest - quantiser.shift
    # Relu cuts codes instead of values.
    low = max(low, zero_point) if pointwise else low
    operands = tuple(writer.ones(coded) for coded in operands)
    start = writer.mark()
    result = writer.name(f"{name} sum")
    read = [
        part
        for index, coded in enumerate(operands)
        for part in (coded.codes, *writer.quantisation(f"{result} operand {index}", coded.scale, coded.zero_point))
    ]
    inputs = [*read, *writer.quantisation(result, scale, zero_point)]
    codes = writer.add("QLinearAdd", inputs, result, add.name)
    coded = Coded(codes, scale, zero_point, low, high)
    if (low, high) != FULL:
        codes = writer.clip(codes, writer.name(f"{name} clipped"), coded, (low, high), quantiser.node.name)
    _check_pairs(network, quantiser, chain, operands, writer.since(start), (scale, zero_point), place)
    for node in chain.steps:
        codes = write_step(writer, node, codes, writer.name(f"{node.output[0]} codes"))
    return dataclasses.replace(coded, codes=codes)


def _check_pairs(
    network: Network,
    quantiser: Quantiser,
    chain: Chain,
    operands: tuple[Coded, Coded],
    written: tuple[list[NodeProto], list[onnx.TensorProto]],
    quantisation: tuple[np.float32, int],
    place: str,
) -> None:
    """Compare what is written with the operators of the file on every pair of codes."""
    numbers = [CODES[(coded.least <= CODES) & (coded.greatest >= CODES)] for coded in operands]
    pairs = np.array(list(itertools.product(*numbers)), np.int8)
    # x + x has one operand.
    if operands[0].codes == operands[1].codes:
        pairs = np.stack([numbers[0]] * 2, axis=1)
    feeds = {coded.codes: pairs[:, index] for index, coded in enumerate(operands)}
    nodes, constants = written
    result = nodes[-1].output[0]
    graph = _graph(nodes, dict.fromkeys(feeds, TensorProto.INT8), result, constants)
    found = open_session(Model.written(_model(network, graph))).run([result], feeds)[0]
    wanted = _given_codes(network, quantiser, chain, operands, pairs, *quantisation)
    wrong = np.flatnonzero(found != wanted)
    if wrong.size:
        first, second = (int(code) for code in pairs[wrong[0]])
        raise ModelError(
            f"{place}: the sum in front of it must be the same number in ONNX Runtime's quantised sums, and is not for "
            f"{wrong.size} of {len(pairs)} pairs of codes, first {first} and {second}; quantise operands and sum with "
            "scales that are powers of two"
        )


def _given_codes(
    network: Network,
    quantiser: Quantiser,
    chain: Chain,
    operands: tuple[Coded, Coded],
    pairs: Int8,
    scale: np.float32,
    zero_point: int,
) -> Int8:
    """Codes that the operators of the file give for pairs of codes."""
    add = network.producer[chain.root]
    result = quantiser.node.output[0]
    spelled, constants = quantiser.spell(result)
    between = [
        helper.make_node("Identity", node.input[:1], node.output) if node in chain.steps else node
        for node in chain.nodes
    ]
    known = constant_operands(network, spelled) | {item.name: numpy_helper.to_array(item) for item in constants}
    graph = _graph(
        [add, *between, *spelled],
        dict.fromkeys(add.input, TensorProto.FLOAT),
        result,
        [numpy_helper.from_array(value, name) for name, value in known.items()],
    )
    feeds = {
        name: (codes.astype(np.float32) - np.float32(coded.zero_point)) * coded.scale
        for name, coded, codes in zip(add.input, operands, pairs.T, strict=True)
    }
    values = plain_session(_model(network, graph)).run([result], feeds)[0]
    return (np.rint(values / scale) + zero_point).astype(np.int8)


def _graph(
    nodes: list[NodeProto], inputs: dict[str, int], output: str, constants: list[onnx.TensorProto]
) -> onnx.GraphProto:
    return helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info(name, dtype, [None]) for name, dtype in inputs.items()],
        [helper.make_empty_tensor_value_info(output)],
        constants,
    )


def _model(network: Network, graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(
        graph, opset_imports=network.measured.model.opset_import, ir_version=network.model.ir_version
    )
