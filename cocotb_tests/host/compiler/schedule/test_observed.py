"""What verification compares stays until it has been compared, even bytes that no layer reads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host import compiler
from lutterfly.host.compiler.operation import Command
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.compiler.schedule import tokens
from lutterfly.host.compiler.storage import NO_ADDRESSES, Addresses
from lutterfly.host.frontend import import_model
from lutterfly.host.session.verify import verify

TINY = PRESETS["tiny"]


def sliced() -> bytes:
    """A first layer in two commands, of whose six channels one is read; another layer's border lies over the others."""
    rng, constants, nodes = np.random.default_rng(598), [], []

    def constant(value: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def convolution(source: str, output: str, shape: tuple[int, ...], scale: float, zero_point: int, **given) -> None:
        weights = constant(rng.integers(-127, 128, shape).astype(np.int8))
        ends = [constant(value) for value in (np.float32(scale), np.int8(zero_point), np.float32(0.01), np.int8(0))]
        result = [constant(np.float32(0.05)), constant(np.int8(3))]
        operands = [source, *ends[:2], weights, *ends[2:], *result]
        nodes.append(helper.make_node("QLinearConv", operands, [output], output, **given))

    convolution("x", "a", (6, 2, 1, 1), 0.05, 3, strides=[2, 2])
    begin, end, axis = (constant(np.array([value])) for value in (2, 3, 1))
    nodes.append(helper.make_node("Slice", ["a", begin, end, axis], ["b"], "slice"))
    convolution("b", "d", (6, 1, 3, 3), 0.05, 3)
    scales = [constant(value) for value in (np.float32(0.05), np.int8(3), np.float32(0.04), np.int8(-5))]
    leaky = helper.make_node("QLinearLeakyRelu", ["d", *scales], ["e"], "leaky", domain="com.microsoft", alpha=0.1)
    nodes.append(leaky)
    convolution("e", "f", (2, 6, 3, 3), 0.04, -5, pads=[1] * 4)
    convolution("f", "g", (2, 2, 3, 3), 0.05, 3, pads=[1] * 4)
    convolution("g", "y", (8, 2, 3, 3), 0.05, 3, pads=[1] * 4)
    x = helper.make_tensor_value_info("x", TensorProto.INT8, ["n", 2, 10, 32])
    y = helper.make_tensor_value_info("y", TensorProto.INT8, ["n", 8, 3, 14])
    graph = helper.make_graph(nodes, "sliced", [x], [y], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


@needs_reference
def test_bytes_that_nobody_reads_are_compared_before_they_are_overwritten() -> None:
    found = verify(sliced(), TINY, samples=6)
    assert {tensor.name: (tensor.machine, tensor.rtl) for tensor in found.tensors}["a"] == (0, 0)
    assert found.is_right


def test_the_compiler_notices_what_is_overwritten_before(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tokens are given first, and then it is rehearsed whether they are enough: only the first is blind.
    taken = itertools.cycle([lambda plan: dict.fromkeys(plan.commands, NO_ADDRESSES), tokens.observations])

    def observations(plan: Plan) -> dict[Command, Addresses]:
        return next(taken)(plan)

    monkeypatch.setattr(tokens, "observations", observations)
    with pytest.raises(AssertionError, match=r"overwrites what is compared after COMPUTE \d+$"):
        compiler.compile_graph(import_model(sliced(), "sliced"), TINY)
