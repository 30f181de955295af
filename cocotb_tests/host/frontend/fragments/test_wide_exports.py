"""What ONNX Runtime's quantiser writes with 16-bit tensors: ONNX Runtime's bytes, or a refusal that names one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType

from cocotb_tests.support.networks.wide_exports import NETWORKS, SHAPE, quantised
from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.classify import NARROW, REMEDY
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

WIDE = {"int16": QuantType.QInt16, "uint16": QuantType.QUInt16}
NARROW_TYPES = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
#: Of ``NETWORKS``, those that have tensors of 16 bits only between pointwise operators, where they may be.
ACCEPTED = ("chain", "swish", "residual", "average", "tail", "matrix")


def values() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(0, 1, (1, *SHAPE)).astype(np.float32)}


def refusal(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(data, "net.onnx")
    return str(caught.value).removeprefix("net.onnx: ")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("name", ACCEPTED)
def test_pointwise_tensors_alone(name: str, opset: int, wide: str, is_symmetric: bool, tmp_path: Path):
    narrow = "uint8" if is_symmetric else "int8"
    data = quantised(tmp_path, name, opset, NARROW_TYPES[narrow], wide=WIDE[wide], is_symmetric=is_symmetric)
    kinds = {tensor.data_type for tensor in onnx.load_from_string(data).graph.initializer}
    assert getattr(onnx.TensorProto, wide.upper()) in kinds
    assert_exact(data, values(), covered=False)
    assert_answers(data, values())


def test_a_chain_is_part_of_the_convolutions(tmp_path: Path):
    data = quantised(tmp_path, "chain", 21, QuantType.QInt8, wide=QuantType.QInt16)
    layers = [(layer.name, layer.table is not None) for layer in import_model(data).layers]
    assert layers == [("conv_a", True), ("conv_d", True), ("conv_y", False)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ACCEPTED)
def test_the_core_has_the_bytes(name: str, tmp_path: Path):
    data = quantised(tmp_path, name, 21, QuantType.QInt8, wide=QuantType.QUInt16)
    assert_right(verify(data, PRESETS["tiny"], samples=1))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("name", sorted({*NETWORKS} - {"pointwise"}))
def test_products_of_16_bits(name: str, opset: int, wide: str, tmp_path: Path):
    """Of weights with one scale ONNX Runtime makes a product of another kind (MatMulNBits), and computes in float."""
    product, tensor = ("MatMul 'matmul_b'", "a") if name == "matrix" else ("Conv 'conv_a'", "x")
    assert refusal(quantised(tmp_path, name, opset, WIDE[wide])) == (
        f"ONNX Runtime computes {product} in float, because it reads the {wide} tensor "
        f"'{tensor}_QuantizeLinear_Output'; {REMEDY}"
    )


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("opset", [17, 21])
def test_pointwise_operators_of_16_bits_alone(opset: int, wide: str, tmp_path: Path):
    assert refusal(quantised(tmp_path, "pointwise", opset, WIDE[wide])) == (
        "no layer can run on the accelerator (Tanh 'tanh_a': 'x' is not quantised); it needs a quantised convolution, "
        f"matrix product or pointwise operator between tensors of 8 bits, which the {wide} tensor "
        f"'x_QuantizeLinear_Output' is not; {NARROW}"
    )


@pytest.mark.parametrize("wide", WIDE)
def test_16_bits_between_pooling_and_concatenation(wide: str, tmp_path: Path):
    """Neither is a function of one code, so that no table holds both."""
    found = refusal(quantised(tmp_path, "pooled", 21, QuantType.QInt8, wide=WIDE[wide]))
    assert found == (
        "Tanh 'tanh_b' between Conv 'conv_a' and Conv 'conv_y' is not supported: MaxPool 'maxpool_p' stands with "
        f"Concat 'concat_d' between tensors of 8 bits, which the {wide} tensor 'p_QuantizeLinear_Output' between "
        f"them is not; {NARROW}"
    )
