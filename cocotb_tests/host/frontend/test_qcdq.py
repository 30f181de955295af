"""Brevitas' QCDQ networks: int8 in, uint8 out, products that ONNX Runtime computes in float."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cocotb_tests.support.networks.small_models import ONE_TYPE, POWERS, without_numbers
from cocotb_tests.support.oracles.exactness import assert_answers, assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.graph import AveragePool, Convolution, Pointwise
from lutterfly.host.model import executed
from lutterfly.host.model.arrays import describe_model
from lutterfly.host.model.model import Model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

#: Made by ``exported/qcdq/make.py``.
FOLDER = Path(__file__).parents[2] / "exported" / "qcdq"
NETWORKS = sorted(path.stem for path in FOLDER.glob("*.onnx") if path.stem != "default")


def exported(name: str) -> tuple[bytes, list[dict[str, np.ndarray]]]:
    data = (FOLDER / f"{name}.onnx").read_bytes()
    info = describe_model(Model(data))[0][0]
    images = np.random.default_rng(0).normal(size=(4, *info.sample_shape)).astype(np.float32)
    return data, [{info.name: image[None]} for image in images]


@pytest.mark.regress
@pytest.mark.parametrize("name", NETWORKS)
def test_exports_are_exact(name: str):
    data, samples = exported(name)
    for sample in samples:
        assert_exact(data, sample, covered=False)
        assert_answers(data, sample)


@pytest.mark.parametrize("name", NETWORKS)
def test_exports_are_computed_in_float(name: str):
    """So that the test above tries what it is for."""
    found = executed.executed_model(onnx.load(FOLDER / f"{name}.onnx"))
    assert {"Conv", "Gemm"} & {node.op_type for node in found.graph.node}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["flattened", "few_bits"])
def test_exports_on_the_core(name: str):
    assert_right(verify(exported(name)[0], PRESETS["tiny"], samples=1))


def test_all_products_run_on_the_accelerator():
    for name in ("averaged", "flattened", "residual"):
        rows = describe(import_model(exported(name)[0]))
        assert not {row.kind for row in rows if row.where == "host"} - {"QuantizeLinear", "DequantizeLinear"}


def test_default_scales_of_eight_bits_are_refused():
    with pytest.raises(ModelError) as caught:
        import_model(exported("default")[0], "net.onnx")
    begin, _, end = str(caught.value).partition(" may round the sum ")
    assert begin == (
        "net.onnx: ONNX Runtime computes Conv '/features/features.1/Conv' in float, because it reads int8 and makes "
        "uint8 codes, and float32"
    )
    assert end.endswith(f"; {ONE_TYPE}{POWERS}")


class Graph:
    """A QDQ graph of an int8 input ``x``, built node by node."""

    def __init__(self, shape: tuple[int, ...]):
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._shape = shape

    def constant(self, value: object, dtype: type) -> str:
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), f"constant_{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [f"{name} result"], name, **attributes))
        return self.nodes[-1].output[0]

    def dequantise(self, codes: str, scale: float, zero_point: str) -> str:
        return self.add("DequantizeLinear", codes, self.constant(scale, np.float32), zero_point)

    def weights(self, values: object, scale: float) -> str:
        return self.dequantise(self.constant(values, np.int8), scale, self.constant(0, np.int8))

    def quantise(self, tensor: str, scale: float, dtype: type = np.uint8) -> str:
        return self.add("QuantizeLinear", tensor, self.constant(scale, np.float32), self.constant(0, dtype))

    def finish(self, *outputs: str) -> bytes:
        shape = ["batch", *self._shape]
        graph = helper.make_graph(
            self.nodes,
            "graph",
            [helper.make_tensor_value_info("x", TensorProto.INT8, shape)],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            self.constants,
        )
        for value, element in zip(graph.output, outputs, strict=True):
            maker = next(node for node in self.nodes if element in node.output)
            kind = TensorProto.FLOAT
            if maker.op_type == "QuantizeLinear":
                zero = next(tensor for tensor in self.constants if tensor.name == maker.input[2])
                kind = zero.data_type
            value.CopyFrom(helper.make_tensor_value_info(element, kind, ["batch", "channels", "rows", "columns"]))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


#: Codes of a tensor of two values: all that 4 bits have.
PAIRS = np.array(list(itertools.product(range(-8, 8), repeat=2)), np.int8)


def convolved(
    scales: tuple[float, float, float] = (0.25, 0.125, 0.5),
    *,
    weights: tuple[int, int] = (7, -5),
    bias: tuple[int, float] | None = None,
    after: tuple[str, ...] = (),
    clipped: bool = True,
) -> bytes:
    """A 1x1 convolution of two channels whose int8 codes become uint8 ones: those of ``PAIRS`` along one row."""
    graph, (read, weight, made) = Graph((2, 1, len(PAIRS))), scales
    codes = "x"
    if clipped:
        codes = graph.add("Clip", codes, graph.constant(-8, np.int8), graph.constant(7, np.int8))
    operands = [graph.dequantise(codes, read, graph.constant(0, np.int8))]
    operands.append(graph.weights(np.reshape(weights, (1, 2, 1, 1)), weight))
    if bias is not None:
        value, own = bias
        operands.append(graph.dequantise(graph.constant([value], np.int32), own, graph.constant(0, np.int32)))
    tensor = graph.add("Conv", *operands)
    for operator in after:
        tensor = graph.add(operator, tensor)
    return graph.finish(graph.quantise(tensor, made))


def exact(data: bytes) -> list:
    graph = assert_exact(data, {"x": PAIRS.T.reshape(1, 2, 1, -1)})
    assert not graph.head
    assert not graph.tail
    return graph.layers


def refusal(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(data)
    return str(caught.value)


@pytest.mark.parametrize("after", [(), ("Relu",)])
@pytest.mark.parametrize("bias", [None, (3, 0.03125)])
def test_powers_of_two_round_ties_as_float_does(bias: tuple | None, after: tuple):
    """A step of the sum is a sixteenth of a code, so that sums meet ties."""
    assert any(isinstance(layer, Convolution) for layer in exact(convolved(bias=bias, after=after)))


def test_few_bits_with_other_scales():
    exact(convolved((0.31, 0.17, 0.711)))


def test_a_tie_that_float_may_miss():
    assert "float32 may round the sum 1 of channel 0 to the code 0 or to 1" in refusal(convolved((0.3, 0.1, 0.06)))


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [((1, 0), ""), ((11, 0), "float32 may round the sum 11 of channel 0 to the code 10 or to 11")],
)
def test_only_sums_that_the_codes_reach(weights: tuple[int, int], wanted: str):
    """Ties are 11 times an odd number, which codes of 4 bits do not reach with the weight 1."""
    data = convolved((0.3, 0.1, 0.03 * 22 / 21), weights=weights, clipped=True)
    if wanted:
        assert wanted in refusal(data)
        return
    with pytest.raises(ModelError):
        import_model(convolved((0.3, 0.1, 0.03 * 22 / 21), weights=weights, clipped=False))
    exact(data)


def test_sums_beyond_the_mantissa_are_uncertain():
    """Of whole multiples of one power of two float32 holds 2**24."""
    for channels, is_exact in ((1024, True), (1040, False)):
        graph = Graph((channels, 1, 1))
        read = graph.dequantise("x", 0.25, graph.constant(0, np.int8))
        product = graph.add("Conv", read, graph.weights(np.full((1, channels, 1, 1), -128), 2.0**-12))
        data = graph.finish(graph.quantise(product, 0.5))
        if is_exact:
            import_model(data)
        else:
            assert "float32 may round the sum" in refusal(data)


@pytest.mark.parametrize("after", [(), ("Flatten",)])
def test_a_bias_between_two_sums(after: tuple[str, ...]):
    """Neither one type for all activations nor a quantisation between would help it."""
    data = convolved(bias=(3, 0.01), after=after)
    assert refusal(data) == (
        "model: ONNX Runtime computes Conv 'Conv_4' in float, because the bias 'DequantizeLinear_3 result' of channel "
        "0 is no whole multiple of input scale times weight scale; use a bias quantised with that scale (Brevitas: "
        "bias_quant=Int32Bias)"
    )


def clipped(limits: tuple[int, int], *, shown: bool = False) -> bytes:
    """Codes that a Clip after them bounds, and that are shown too if ``shown``."""
    graph = Graph((2, 1, len(PAIRS)))
    read = graph.dequantise("x", 0.25, graph.constant(0, np.int8))
    codes = graph.quantise(graph.add("Conv", read, graph.weights(np.reshape((7, -5), (1, 2, 1, 1)), 0.125)), 0.5)
    ends = [graph.constant(limit, np.uint8) for limit in limits]
    cut = graph.add("Clip", codes, *ends)
    again = graph.quantise(graph.add("Relu", graph.dequantise(cut, 0.5, graph.constant(0, np.uint8))), 0.5)
    return graph.finish(*([codes] if shown else []), again)


def test_a_clip_whose_bound_is_computed_is_no_clip_of_constants():
    graph = Graph((2, 1, len(PAIRS)))
    read = graph.dequantise("x", 0.25, graph.constant(0, np.int8))
    codes = graph.quantise(graph.add("Conv", read, graph.weights(np.reshape((7, -5), (1, 2, 1, 1)), 0.125)), 0.5)
    greatest = graph.add("ReduceMax", "x", keepdims=0)
    bound = graph.add("Cast", greatest, to=TensorProto.UINT8)
    cut = graph.add("Clip", codes, graph.constant(0, np.uint8), bound)
    again = graph.quantise(graph.add("Relu", graph.dequantise(cut, 0.5, graph.constant(0, np.uint8))), 0.5)
    data = graph.finish(again)
    for greatest in (2, 127):
        assert_answers(data, {"x": np.minimum(PAIRS, greatest).T.reshape(1, 2, 1, -1)})


@pytest.mark.parametrize("limits", [(0, 15), (2, 3), (0, 255), (9, 4)])
def test_a_clip_of_codes_is_the_bounds_of_the_product(limits: tuple[int, int]):
    data = clipped(limits)
    graph = assert_exact(data, {"x": PAIRS.T.reshape(1, 2, 1, -1)}, covered=False)
    assert not any(isinstance(layer, Pointwise) for layer in graph.layers)


def test_a_clip_of_codes_that_are_read_elsewhere_stays():
    assert_answers(clipped((2, 3), shown=True), {"x": PAIRS.T.reshape(1, 2, 1, -1)})


@pytest.mark.parametrize("scales", [(0.25, 0.5), (0.5, 0.125)])
def test_averages_with_powers_of_two(scales: tuple[float, float]):
    """Every fourth sum of two by two elements is a tie, which float32 holds."""
    graph = Graph((3, 8, 8))
    mean = graph.add("AveragePool", graph.dequantise("x", scales[0], graph.constant(0, np.int8)), kernel_shape=[2, 2])
    data = graph.finish(graph.quantise(mean, scales[1], np.int8))
    codes = np.random.default_rng(0).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8)
    layers = assert_exact(data, {"x": codes}).layers
    assert [type(layer) for layer in layers] == [AveragePool]


def test_averages_of_other_windows_are_refused():
    graph = Graph((3, 8, 8))
    mean = graph.add("AveragePool", graph.dequantise("x", 0.25, graph.constant(0, np.int8)), kernel_shape=[1, 6])
    data = graph.finish(graph.quantise(mean, 0.5, np.int8))
    assert "is a float mean of 6 elements" in refusal(data)


def test_an_output_that_is_one_number():
    """As the scale is where a last layer of Brevitas returns a QuantTensor."""
    model = onnx.load_from_string(exported("flattened")[0])
    scale = next(node.input[1] for node in model.graph.node if node.op_type == "QuantizeLinear")
    model.graph.output.append(helper.make_tensor_value_info(scale, TensorProto.FLOAT, []))
    assert refusal(model.SerializeToString()) == (
        f"model: output {scale!r} must have a batch dimension, and is a constant number, whatever the input; take it "
        "out of the outputs (Brevitas: return_quant_tensor=False in the last layer)"
    )


def test_a_bias_of_int8_codes():
    graph = Graph((3, 4, 4))
    codes = graph.quantise(graph.add("Tanh", graph.dequantise("x", 0.5, graph.constant(0, np.int8))), 0.3)
    read = graph.dequantise(codes, 0.3, graph.constant(0, np.uint8))
    weights = graph.weights(np.full((2, 3, 1, 1), 100), 0.017)
    bias = graph.constant([5, -3], np.int8)
    operand = graph.dequantise(bias, 0.3 * 0.017, graph.constant(0, np.int8))
    product = graph.add("Conv", read, weights, operand)
    assert without_numbers(refusal(graph.finish(graph.quantise(graph.add("Relu", product), 0.7)))) == (
        f"model: ONNX Runtime computes Conv 'Conv_6' in float, because its bias is int8 codes {bias!r}, and float32 "
        "may round the sum to either code; quantise it to int32 with the scale of input times weights (Brevitas: "
        f"bias_quant=Int32Bias){POWERS}"
    )


def product_of(
    weights: np.ndarray,
    *,
    zero_point: int = 0,
    bias: tuple[list, type, float] | None = None,
    scale: object = 0.5,
    made: type = np.int8,
) -> bytes:
    """A 1x1 convolution of int8 codes with operands in whatever form."""
    graph = Graph((3, 4, 4))
    given = {"axis": 1} if np.ndim(scale) else {}
    zero = graph.constant(np.zeros(np.shape(scale)), np.int8)
    operands = [graph.add("DequantizeLinear", "x", graph.constant(scale, np.float32), zero, **given)]
    if weights.dtype == np.float32:
        operands.append(graph.constant(weights, np.float32))
    else:
        codes, zero = graph.constant(weights, weights.dtype), graph.constant(zero_point, weights.dtype)
        operands.append(graph.dequantise(codes, 0.017, zero))
    if bias is not None:
        values, dtype, own = bias
        operands.append(graph.dequantise(graph.constant(values, dtype), own, graph.constant(0, dtype)))
    return graph.finish(graph.quantise(graph.add("Conv", *operands), 0.7, made))


THREES = np.full((2, 3, 1, 1), 3, np.int8)


def test_unsigned_weights_are_the_reason():
    assert without_numbers(refusal(product_of(THREES.astype(np.uint8), zero_point=128))) == (
        "model: ONNX Runtime computes Conv 'Conv_2' in float, because its weights are uint8 codes 'constant_2', and "
        f"float32 may round the sum to either code; quantise them with weight_type=QuantType.QInt8{POWERS}"
    )


def test_the_scale_of_a_bias_is_the_reason():
    assert refusal(product_of(THREES, bias=([1000, 2000], np.int32, 0.013))) == (
        "model: ONNX Runtime computes Conv 'Conv_3' in float, because the bias 'DequantizeLinear_2 result' of channel "
        "0 is no whole multiple of input scale times weight scale; use a bias quantised with that scale (Brevitas: "
        "bias_quant=Int32Bias)"
    )


def test_float_weights_are_the_reason():
    assert refusal(product_of(THREES.astype(np.float32), made=np.uint8)) == (
        "model: the weights 'constant_2' of Conv 'Conv_1' must be int8, not float32; quantise with "
        "weight_type=QuantType.QInt8"
    )


def test_a_scale_for_each_channel_of_an_activation():
    assert refusal(product_of(THREES, scale=[0.1, 0.2, 0.3])) == (
        "model: the scale 'constant_1' of DequantizeLinear 'DequantizeLinear_0' must be one value, not 3; quantise "
        "activations per tensor (per_channel concerns weights alone)"
    )


def test_a_slice_that_reverses_channels():
    graph = Graph((3, 4, 4))
    read = graph.dequantise("x", 0.5, graph.constant(0, np.int8))
    product = graph.add("Conv", read, graph.weights(np.full((3, 3, 1, 1), 3), 0.017))
    read = graph.dequantise(graph.quantise(product, 0.7, np.int8), 0.7, graph.constant(0, np.int8))
    ends = [graph.constant([value], np.int64) for value in (2, -100, 1, -1)]
    codes = graph.quantise(graph.add("Slice", read, *ends), 0.7, np.int8)
    product = graph.add("Conv", graph.dequantise(codes, 0.7, graph.constant(0, np.int8)), graph.weights(THREES, 0.017))
    data = graph.finish(graph.quantise(product, 0.9, np.int8))
    found = assert_exact(data, {"x": np.random.default_rng(0).integers(-128, 128, (1, 3, 4, 4), np.int8)})
    assert [*map(found.kind_of, found.layers)] == ["convolution", "shuffle", "convolution"]


def connected(bias: list[float], made: type, *, quantised: bool = False) -> bytes:
    """A flattened map, then a fully connected layer whose bias is in float, as Brevitas writes it by default."""
    graph = Graph((4, 1, 1))
    flat = graph.add("Flatten", graph.dequantise("x", 0.25, graph.constant(0, np.int8)))
    if quantised:
        flat = graph.dequantise(graph.quantise(flat, 0.25, np.int8), 0.25, graph.constant(0, np.int8))
    weights = graph.weights(np.full((2, 4), 3), 0.125)
    product = graph.add("Gemm", flat, weights, graph.constant(bias, np.float32), transB=1)
    return graph.finish(graph.quantise(product, 0.5, made))


@pytest.mark.parametrize("made", [np.int8, np.uint8])
def test_a_float_bias_and_its_remedies(made: type):
    """ONNX Runtime quantises it where nothing stands between; of another type the codes are certain by their scales."""
    assert refusal(connected([0.3, 1.0], made)) == (
        "model: ONNX Runtime computes Gemm 'Gemm_3' in float, because Flatten 'Flatten_1' stands between it and its "
        "quantised ends, and the bias 'constant_5' of channel 0 is no whole multiple of input scale times weight "
        "scale; put QuantizeLinear and DequantizeLinear between them, or use a bias quantised with that scale "
        "(Brevitas: bias_quant=Int32Bias)"
    )
    for data in (connected([0.3, 1.0], made, quantised=True), connected([0.3125, 1.0], made)):
        assert [type(layer) for layer in import_model(data).layers] == [Convolution]
