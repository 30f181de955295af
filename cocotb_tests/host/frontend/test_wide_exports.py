"""What ONNX Runtime's quantiser writes with 16-bit tensors: ONNX Runtime's bytes, or a refusal that names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.classify import NARROW, REMEDY
from lutterfly.host.session.verify import verify

# Networks with 16-bit tensors as ONNX Runtime's own quantiser writes them.

#: Of the input ``x``.
SHAPE = (3, 6, 6)
#: Those that make sums: around all others tensors may have 16 bits.
_SUMS = ("Conv", "Gemm", "MatMul", "Add", "GlobalAveragePool")


def node(operator: str, inputs: str, outputs: str, **attributes) -> NodeProto:
    """A node that is named after its operator and first output."""
    made = outputs.split()
    return helper.make_node(operator, inputs.split(), made, f"{operator.lower()}_{made[0]}", **attributes)


#: Nodes from ``x`` to ``y``, the shapes of weights, and that of the result.
Network = tuple[Sequence[NodeProto], Mapping[str, tuple[int, ...]], tuple[int, ...]]
_CONV = node("Conv", "x first", "a")
_CONVOLUTIONS = {"first": (4, 3, 3, 3), "second": (4, 4, 1, 1)}
NETWORKS: dict[str, Network] = {
    "chain": (
        [
            *(_CONV, node("Tanh", "a", "b"), node("HardSwish", "b", "c")),
            *(node("Conv", "c second", "d"), node("Sigmoid", "d", "e"), node("Conv", "e second", "y")),
        ],
        _CONVOLUTIONS,
        (4, 4, 4),
    ),
    "swish": (
        [_CONV, node("Sigmoid", "a", "s"), node("Mul", "a s", "m"), node("Conv", "m second", "y")],
        _CONVOLUTIONS,
        (4, 4, 4),
    ),
    "residual": (
        [
            *(_CONV, node("Tanh", "a", "b"), node("Conv", "b second", "c"), node("Add", "b c", "d")),
            *(node("Relu", "d", "e"), node("Conv", "e second", "y")),
        ],
        _CONVOLUTIONS,
        (4, 4, 4),
    ),
    "average": (
        [
            *(_CONV, node("Tanh", "a", "b"), node("GlobalAveragePool", "b", "c"), node("Flatten", "c", "d")),
            node("Gemm", "d matrix", "y", transB=1),
        ],
        {"first": (4, 3, 3, 3), "matrix": (5, 4)},
        (5,),
    ),
    "tail": ([_CONV, node("Tanh", "a", "b"), node("Sigmoid", "b", "y")], {"first": (4, 3, 3, 3)}, (4, 4, 4)),
    "pooled": (
        [
            *(_CONV, node("Tanh", "a", "b"), node("MaxPool", "b", "c", kernel_shape=[2, 2]), node("Sigmoid", "b", "s")),
            *(node("MaxPool", "s", "p", kernel_shape=[2, 2]), node("Concat", "c p", "d", axis=1)),
            node("Conv", "d third", "y"),
        ],
        {"first": (4, 3, 3, 3), "third": (4, 8, 1, 1)},
        (4, 3, 3),
    ),
    "matrix": (
        [node("Flatten", "x", "a"), node("MatMul", "a first", "b"), node("Tanh", "b", "c"), node("Sigmoid", "c", "y")],
        {"first": (108, 5)},
        (5,),
    ),
    "pointwise": ([node("Tanh", "x", "a"), node("HardSwish", "a", "b"), node("Sigmoid", "b", "y")], {}, SHAPE),
}


class _Samples(CalibrationDataReader):
    """A few random samples of ``x``."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._samples = iter([{"x": rng.normal(0, 1, (1, *SHAPE)).astype(np.float32)} for _ in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


def quantised(
    folder: Path,
    name: str,
    opset: int,
    activations: QuantType,
    *,
    wide: QuantType | None = None,
    is_symmetric: bool = False,
) -> bytes:
    """One of ``NETWORKS``, quantised.

    Parameters
    ----------
    folder : Path
        For files.
    opset : int
        From 21 on ONNX has 16 bits itself; before, they are com.microsoft's.
    activations : QuantType
    wide : QuantType or None
        Of tensors that nodes other than sums make, and of what they read of sums, if not the same.
    is_symmetric : bool
        Of activations.
    """
    nodes, shapes, result = NETWORKS[name]
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), weight)
        for weight, shape in shapes.items()
    ]
    ends = [
        helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, ["batch", *shape])
        for end, shape in (("x", SHAPE), ("y", result))
    ]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), folder / "f.onnx"
    )
    quantize_static(
        folder / "f.onnx",
        folder / "q.onnx",
        _Samples(),
        activation_type=activations,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=sorted({entry.op_type for entry in nodes}),
        extra_options={
            "ActivationSymmetric": is_symmetric,
            "TensorQuantOverrides": _overrides(nodes, activations, wide) if wide else {},
        },
    )
    return (folder / "q.onnx").read_bytes()


def _overrides(nodes: Sequence[NodeProto], narrow: QuantType, wide: QuantType) -> dict[str, list[dict]]:
    """16 bits between nodes that are no sums; ``x`` and what sums read and make have 8."""
    found = {}
    for entry in nodes:
        readers = [other for other in nodes if entry.output[0] in other.input]
        sums = {other.name for other in readers if other.op_type in _SUMS}
        others = {other.name for other in readers} - sums
        if entry.op_type not in _SUMS:
            back = {"convert": {"quant_type": narrow, "recv_nodes": sums}} if sums else {}
            found[entry.output[0]] = [{"quant_type": wide, **back}]
        elif others:
            found[entry.output[0]] = [{"quant_type": narrow, "convert": {"quant_type": wide, "recv_nodes": others}}]
    return found


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
