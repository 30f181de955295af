"""ONNX's own backend tests, with their own runner: the cases of the documentation pass, or are refused as it says.

Run as a script (`python -m`), this module writes the page.
"""

from __future__ import annotations

import copy
import unittest
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep
from onnx.backend.test import BackendTest

from lutterfly.host import InferenceSession

PAGE = Path(__file__).parents[3] / "docs" / "onnx-backend-tests.md"
CONFIG = "tiny"

#: Operator, and the cases that pass.
PASSED = {
    "QLinearConv": ("test_qlinearconv",),
    "QLinearMatMul": tuple(
        f"test_qlinearmatmul_2D_{codes}_{scales}" for codes in ("uint8", "int8") for scales in ("float32", "float16")
    ),
    "ConvInteger": ("test_convinteger_without_padding", "test_convinteger_with_padding"),
    "MatMulInteger": ("test_matmulinteger",),
    "MaxPool": ("test_maxpool_2d_uint8",),
    "Clip": (
        "test_clip_default_int8_min",
        "test_clip_default_int8_min_expanded",
        "test_clip_default_int8_max",
        "test_clip_default_int8_max_expanded",
    ),
}
#: Operator, the cases that are refused, why they must be, and what the message says.
REFUSED = {
    "Clip": (
        ("test_clip_default_int8_inbounds",),
        "it has no limits, and ONNX Runtime drops it: nothing is left to compute",
        "no layer can run on the accelerator",
    ),
    "QLinearMatMul": (
        tuple(
            f"test_qlinearmatmul_3D_{codes}_{scales}"
            for codes in ("uint8", "int8")
            for scales in ("float32", "float16")
        ),
        "each sample has weights of its own",
        "must be one matrix, not a stack",
    ),
    "Add, Sub, Mul, Div, Max, Min": (
        tuple(
            f"test_{name}_{codes}" for name in ("add", "sub", "mul", "div", "max", "min") for codes in ("int8", "uint8")
        ),
        "integer arithmetic on two tensors; the accelerator only adds quantised ones, by their scales",
        "only scalars can be tabulated",
    ),
}

#: Where operators keep their weights; their zero point stands two places after.
_WEIGHTS = {"QLinearConv": 3, "QLinearMatMul": 3, "ConvInteger": 1, "MatMulInteger": 1}

_PAGE = """\
# ONNX's backend tests

`cocotb_tests/host/frontend/test_onnx_backend.py` runs the cases on this page with the runner of `onnx.backend.test` on
the simulated accelerator (`tiny`), and fails if one ends otherwise than it says here.

The cases hand in weights, scales and zero points as inputs. An adapter
in that file, which also writes this page, makes constants of them, float32 of float16 scales,
and a batch of the first axis. Their weights have zero points, and without them they do not fit int8:
the adapter writes them as a sum of two int8 arrays, which see the same input channels, repeated. The result is the
same. The int32 sums of ConvInteger and MatMulInteger are put together from several results of 8 bits each, see
[frontend.md](frontend.md).

| operator | cases that pass |
|---|---|
{passed}

| operator | cases that are refused | because |
|---|---|---|
{refused}

QuantizeLinear and DequantizeLinear alone leave the accelerator nothing to do. The cases of other operators on 8-bit
tensors (comparisons, bitwise operators, casts, image decoders ...) are not about quantised networks.
"""


class SimulatedAccelerator(Backend):
    """Prepares a case for :class:`InferenceSession`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs) -> BackendRep:
        super().prepare(model, device, **kwargs)
        return _Case(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


class _Case(BackendRep):
    def __init__(self, model: onnx.ModelProto):
        self.model = model

    def run(self, inputs: Sequence[np.ndarray], **_) -> tuple[np.ndarray, ...]:
        name = self.model.graph.input[0].name
        session = InferenceSession(freeze(self.model, inputs[1:]).SerializeToString(), CONFIG)
        return tuple(session.run(None, {name: inputs[0]}))


def freeze(model: onnx.ModelProto, values: Sequence[np.ndarray]) -> onnx.ModelProto:
    """The model with ``values`` as constants, in place of all inputs but the first, whose first axis is the batch.

    Scales become float32, and weights int8 with the zero point 0.
    """
    frozen = copy.deepcopy(model)
    graph = frozen.graph
    constants = {info.name: np.asarray(value) for info, value in zip(graph.input[1:], values, strict=True)}
    constants |= {name: value.astype(np.float32) for name, value in constants.items() if value.dtype == np.float16}
    del graph.input[1:]
    for node in copy.deepcopy(graph.node):
        if node.op_type in _WEIGHTS:
            _centre_weights(graph, node.op_type, constants)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    for info in (*graph.input, *graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "batch"
    return frozen


def _centre_weights(graph: onnx.GraphProto, operator: str, constants: dict[str, np.ndarray]) -> None:
    """Write weights with a zero point as a sum of int8 weights without one, each of which sees all the inputs."""
    (node,) = graph.node
    at = _WEIGHTS[operator]
    source, weights, zero_point = node.input[0], node.input[at], "".join(node.input[at + 2 : at + 3])
    if not zero_point:
        return
    zeros = constants[zero_point].astype(np.int16)
    is_convolution = operator in ("QLinearConv", "ConvInteger")
    rest = constants[weights] - (zeros.reshape(-1, 1, 1, 1) if is_convolution else zeros)
    terms = []
    while not terms or rest.any():
        terms.append(np.clip(rest, -128, 127).astype(np.int8))
        rest = rest - terms[-1]
    constants[weights] = np.concatenate(terms, axis=1 if is_convolution else -2)
    # ONNX Runtime's ConvInteger has one zero point for all weights.
    constants[zero_point] = np.zeros(() if operator == "ConvInteger" else zeros.shape, np.int8)
    if len(terms) > 1:
        node.input[0] = f"{source}_repeated"
        repeated = helper.make_node("Concat", [source] * len(terms), node.input[:1], axis=1 if is_convolution else -1)
        graph.node.insert(0, repeated)


def page() -> str:
    """The documentation's page."""
    passed = [f"| {operator} | {_listed(cases)} |" for operator, cases in PASSED.items()]
    refused = [f"| {operator} | {_listed(cases)} | {why} |" for operator, (cases, why, _) in REFUSED.items()]
    return _PAGE.format(passed="\n".join(passed), refused="\n".join(refused))


def _listed(cases: Sequence[str]) -> str:
    return ", ".join(f"`{case}`" for case in cases)


class Outcomes(unittest.TestResult):
    """What became of each case, by its name: "passed", or the traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.by_case: dict[str, str] = {}

    def _note(self, test: unittest.TestCase, outcome: str) -> None:
        self.by_case[test.id().rpartition(".")[2].removesuffix("_cpu")] = outcome

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._note(test, "passed")

    def addFailure(self, test: unittest.TestCase, err) -> None:  # noqa: N802
        self._note(test, str(err[1]))

    def addError(self, test: unittest.TestCase, err) -> None:  # noqa: N802
        self._note(test, f"{err[0].__name__}: {err[1]}")


def outcomes(cases: Iterable[str]) -> dict[str, str]:
    """Run cases. The runner first makes all that ONNX has, which takes half a minute."""
    result = Outcomes()
    with warnings.catch_warnings():
        # Of the cases' makers: casts and logarithms out of range.
        warnings.simplefilter("ignore")
        runner = BackendTest(SimulatedAccelerator, __name__)
        for case in cases:
            runner.include(f"^{case}_cpu$")
        runner.test_suite.run(result)
    return result.by_case


@pytest.mark.regress
def test_cases_end_as_the_page_says() -> None:
    passed = {case for cases in PASSED.values() for case in cases}
    refused = {case: message for cases, _, message in REFUSED.values() for case in cases}
    found = outcomes([*passed, *refused])
    assert found.keys() == passed | refused.keys()
    assert {case: found[case] for case in passed} == dict.fromkeys(passed, "passed")
    for case, message in refused.items():
        assert found[case].startswith("ModelError: "), found[case]
        assert message in found[case]


def test_the_page_is_what_is_tested() -> None:
    assert PAGE.read_text() == page(), "run `python -m cocotb_tests.host.frontend.test_onnx_backend`"


if __name__ == "__main__":
    PAGE.write_text(page())
