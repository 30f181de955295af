"""int16 and uint16 tensors between pointwise operators become part of the tables around them; elsewhere they are
refused by name, or the host computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.generated import TINY, Codes, Generated, Maker
from cocotb_tests.support.networks.qdq_graphs import GraphOfCodes
from cocotb_tests.support.networks.small_models import WIDE, convolved, node_name, repeated, widened
from cocotb_tests.support.oracles.exactness import accepted, assert_answers, assert_exact, assert_right, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host.frontend import ModelError, describe, import_model
from lutterfly.host.frontend.classify import NARROW, REMEDY
from lutterfly.host.graph import Graph, Pointwise
from lutterfly.host.graph.tabulate import CODES
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

#: Operator set, and the domain of 16-bit quantisation in it.
FORMS = {"opset 21": (21, ""), "com.microsoft": (17, "com.microsoft")}


def feeds(made: Maker, seed: int = 0) -> dict[str, np.ndarray]:
    limits = np.iinfo(made.dtype)
    return {"x": np.random.default_rng(seed).integers(limits.min, limits.max + 1, made.input_shape, made.dtype)}


def finish(made: Maker, tensor: str, scale: float = 0.02, shape: tuple[int, ...] = ()) -> None:
    """Quantise to 8 bits, and a convolution after it."""
    made.quantise(tensor, *made.quantisation(scale, 3), shape or made.shape)
    channels, *sides = made.shape[1:]
    made.product("Conv", (2, channels, 1, 1), 0, (1, 2, *sides), bias=False)


def exact(made: Maker, outputs: list[str] | None = None, opset: int = 21) -> Graph:
    data = made.serialise(outputs, opset=opset)
    assert_answers(data, feeds(made, 1))
    return assert_exact(data, feeds(made))


def refusal(made: Maker, outputs: list[str] | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        import_model(made.serialise(outputs, opset=21), "net.onnx")
    return str(caught.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
@pytest.mark.parametrize("dtype", WIDE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operators", ["", "Relu", "HardSwish", "Tanh HardSwish Sigmoid", "Clip Elu"])
def test_a_chain_is_one_table(operators: str, form: str, dtype: type, unsigned: bool):
    opset, domain = FORMS[form]
    made = convolved(unsigned=unsigned)
    tensor = widened(made, made.dequantised(), dtype, domain=domain)
    for at, operator in enumerate(operators.split()):
        tensor = widened(made, made.pointwise(tensor, operator), dtype, 0.00007, 400 * at, domain=domain)
    finish(made, tensor)
    graph = exact(made, opset=opset)
    assert not any(isinstance(layer, Pointwise) for layer in graph.layers)
    assert sum(getattr(layer, "table", None) is not None for layer in graph.layers) == 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first", WIDE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("second", WIDE, ids=lambda dtype: dtype.__name__)
def test_two_in_a_row(first: type, second: type):
    """ONNX Runtime makes one of two of the same type."""
    made = convolved()
    tensor = widened(made, widened(made, made.dequantised(), first, 0.00011, 77), second, 0.00008, -5000)
    finish(made, made.node("Tanh", [tensor]), 0.009)
    exact(made)


def test_16_bits_cut_and_round_what_8_bits_do_not():
    """ONNX Runtime's answer is not that of the chain in float, so that the tests here can fail."""
    tables = []
    for wide in (True, False):
        made = convolved()
        tensor = made.dequantised()
        tensor = widened(made, tensor, scale=0.00001) if wide else tensor
        finish(made, made.node("Tanh", [tensor]), 0.004)
        tables.append(next(layer.table for layer in exact(made).layers if getattr(layer, "table", None) is not None))
    assert (tables[0] != tables[1]).mean() > 0.5


def test_scales_that_lose_codes_are_no_identity():
    """Both ends have one quantisation, and layout alone stands between; what lies between has 16 coarser bits."""
    made = convolved()
    ends = made.scale, made.zero
    tensor = widened(made, made.dequantised(), scale=float(made.value(made.scale)) * 3)
    tensor = made.node("Reshape", [tensor, made.constant("shape", np.array([-1, 4, 16]))])
    made.quantise(tensor, *ends, (1, 4, 16))
    graph = exact(made)
    assert (graph.layers[-1].table != CODES).any()


def test_repeated_activations_have_equal_tables():
    graph = exact(repeated(3))
    tables = [layer.table.tobytes() for layer in graph.layers]
    assert len(tables) == 3
    assert len(set(tables)) == 1


@pytest.mark.parametrize("dtype", WIDE, ids=lambda dtype: dtype.__name__)
def test_a_tensor_with_two_readers(dtype: type):
    made = convolved()
    tensor = widened(made, made.dequantised(), dtype)
    gated = made.node("Mul", [tensor, widened(made, made.node("Sigmoid", [tensor]), dtype, 0.00002)])
    finish(made, widened(made, gated, dtype, 0.0002))
    exact(made)


def test_a_tensor_with_readers_that_are_quantised_apart():
    made = convolved()
    tensor = widened(made, made.node("Elu", [made.dequantised()]))
    shape, outputs = made.shape, []
    for operator in ("Tanh", "Sigmoid"):
        finish(made, widened(made, made.node(operator, [tensor]), scale=0.00003), 0.009, shape)
        outputs.append(made.tensor)
    graph = exact(made, outputs)
    assert sorted(layer.name for layer in graph.layers if isinstance(layer, Pointwise)) == [
        node_name(made, "Sigmoid"),
        node_name(made, "Tanh"),
    ]


def test_a_tensor_that_passes_its_own_codes():
    made = convolved()
    tensor = widened(made, made.dequantised())
    made.quantise(made.node("Sigmoid", [tensor]), *made.quantisation(0.004, -128), made.shape)
    finish(made, made.node("Mul", [tensor, made.dequantised()]))
    exact(made)


def test_a_channel_operator_beside_another_reader():
    made = convolved()
    tensor = widened(made, made.dequantised())
    halves = ["first", "second"]
    made.nodes.append(onnx.helper.make_node("Split", [tensor], halves, "split", axis=1, num_outputs=2))
    outputs = []
    for half in halves:
        made.quantise(half, *made.quantisation(0.02, 3), (1, 2, 4, 4))
        outputs.append(made.tensor)
    made.quantise(made.node("Tanh", [tensor]), *made.quantisation(0.01, 3), (1, 4, 4, 4))
    exact(made, [*outputs, made.tensor])


def pooled(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
    return made.node("MaxPool", [tensor], kernel_shape=[2, 2]), (1, 4, 3, 3)


def transposed(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
    tensor = widened(made, made.node("Transpose", [tensor], perm=[0, 2, 3, 1]))
    return made.node("Transpose", [tensor], perm=[0, 3, 1, 2]), made.shape


def joined(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
    return made.node("Concat", [tensor, widened(made, made.node("Tanh", [tensor]))], axis=1), (1, 8, 4, 4)


def padded(made: Maker, tensor: str) -> tuple[str, tuple[int, ...]]:
    pads = made.constant("pads", np.array([0, 0, 1, 1, 0, 0, 1, 1]))
    return made.node("Pad", [tensor, pads]), (1, 4, 6, 6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", WIDE, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("operator", [pooled, transposed, joined, padded])
def test_what_moves_codes_or_chooses_among_them(operator: Callable, dtype: type):
    made = convolved()
    tensor, shape = operator(made, widened(made, made.node("Elu", [made.dequantised()]), dtype))
    finish(made, widened(made, tensor, dtype, 0.00013), shape=shape)
    exact(made)


def test_channels_of_two_tensors_are_joined():
    made = convolved()
    first = made.tensor, made.scale, made.zero
    made.product("Conv", (4, 4, 1, 1), 0, made.shape)
    second = widened(made, made.dequantised(), np.uint16)
    made.tensor, made.scale, made.zero = first
    tensor = made.node("Concat", [widened(made, made.node("Tanh", [made.dequantised()])), second], axis=1)
    finish(made, widened(made, tensor, scale=0.0002), shape=(1, 8, 4, 4))
    exact(made)


def test_channels_of_a_tensor_and_of_its_own_codes_are_joined():
    made = convolved()
    tensor = widened(made, made.dequantised())
    made.quantise(made.node("Sigmoid", [tensor]), *made.quantisation(0.004, -128), made.shape)
    finish(made, made.node("Concat", [tensor, made.dequantised()], axis=1), shape=(1, 8, 4, 4))
    exact(made)


READERS = {
    "MaxPool": pooled,
    "Concat": lambda made, tensor: (made.node("Concat", [tensor, made.dequantised()], axis=1), (1, 8, 4, 4)),
    "Pad": padded,
    "Tanh": lambda made, tensor: (made.node("Tanh", [tensor]), made.shape),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("first", "second"),
    [("Concat", "Concat"), ("MaxPool", "Concat"), ("MaxPool", "MaxPool"), ("Pad", "MaxPool"), ("Concat", "Tanh")],
)
def test_two_readers_that_move_codes_or_choose_among_them(first: str, second: str):
    """Each is a layer of its own, as it is with a tensor of 8 bits."""
    made = convolved()
    start = made.tensor, made.scale, made.zero, made.shape
    tensor, outputs = widened(made, made.node("Elu", [made.dequantised()])), []
    for operator in (first, second):
        made.tensor, made.scale, made.zero, made.shape = start
        result, shape = READERS[operator](made, tensor)
        made.quantise(result, *made.quantisation(0.02, 3), shape)
        outputs.append(made.tensor)
    exact(made, outputs)


def hosted(graph: Graph) -> list[str]:
    return [row.kind for row in describe(graph) if row.where == "host"]


def test_an_output_of_16_bits_is_the_hosts():
    made = convolved()
    tensor = widened(made, made.node("Tanh", [made.dequantised()]), scale=0.00003)
    wide = made.nodes[-1].input[0]
    finish(made, made.node("Sigmoid", [tensor]))
    graph = exact(made, [wide, made.tensor])
    assert hosted(graph) == ["DequantizeLinear", "Tanh", "QuantizeLinear"]


def test_an_input_of_16_bits_is_the_hosts():
    made = convolved()
    first = made.nodes[0]
    ends = [made.constant("scale", np.float32(0.0001)), made.constant("zero", np.int16(-7))]
    head = [
        onnx.helper.make_node("DequantizeLinear", ["x", *ends], ["real"], "first"),
        onnx.helper.make_node("QuantizeLinear", ["real", *first.input[1:]], ["codes"], "second"),
    ]
    first.input[0] = "codes"
    made.nodes[:0] = head
    data = made.serialise(input_type=np.int16, opset=21)
    values = {"x": np.random.default_rng(0).integers(-(1 << 15), 1 << 15, made.input_shape, np.int16)}
    assert_answers(data, values)
    assert hosted(assert_exact(data, values)) == ["DequantizeLinear", "QuantizeLinear"]


def wide_name(made: Maker, at: int) -> str:
    return node_name(made, "QuantizeLinear", at) + "_out"


@pytest.mark.parametrize("operator", ["Conv", "MatMul", "Gemm"])
def test_a_product_that_reads_16_bits(operator: str):
    made = convolved()
    tensor = widened(made, made.dequantised())
    wide = wide_name(made, -1)
    if operator == "Conv":
        made.tensor = tensor
        made.product("Conv", (4, 4, 3, 3), 0, (1, 4, 2, 2))
    else:
        made.tensor = made.node("Flatten", [tensor])
        made.product(operator, (64, 5), 1, (1, 5))
    node = next(node for node in made.nodes if node.name == node_name(made, operator))
    removed = next(other for other in made.nodes if node.input[0] in other.output)
    made.nodes.remove(removed)
    node.input[0] = removed.input[0]
    assert refusal(made) == (
        f"net.onnx: ONNX Runtime computes {operator} '{node.name}' in float, because it reads the int16 tensor "
        f"'{wide}'; {REMEDY}"
    )


@pytest.mark.parametrize("between", ["", "Relu", "Identity", "Flatten"])
def test_a_product_that_makes_16_bits(between: str):
    made = convolved()
    product = node_name(made, "Conv")
    result = made.nodes.pop().input[0]
    tensor = widened(made, made.node(between, [result]) if between else result, np.uint16)
    wide = wide_name(made, -1)
    shape = (1, 64, 1, 1) if between == "Flatten" else made.shape
    finish(made, made.node("Reshape", [tensor, made.constant("shape", np.array([-1, *shape[1:]]))]), shape=shape)
    assert refusal(made) == (
        f"net.onnx: ONNX Runtime computes Conv '{product}' in float, because it makes the uint16 tensor '{wide}'; "
        f"{REMEDY}"
    )


def test_a_product_in_float_ahead_is_the_hosts():
    made = Maker(np.random.default_rng(3), "qdq", False, TINY)
    made.start((1, 3, 6, 6))
    weights = made.constant("float", made.rng.normal(0, 0.2, (4, 3, 3, 3)).astype(np.float32))
    made.shape = (1, 4, 4, 4)
    finish(made, made.node("Tanh", [widened(made, made.node("Conv", ["x", weights]))]))
    data = made.serialise(input_type=np.float32, opset=21)
    assert_answers(data, {"x": np.random.default_rng(0).normal(0, 1, made.input_shape).astype(np.float32)})
    assert hosted(import_model(data))[0] == "Conv"


def test_nothing_but_16_bits():
    made = Maker(np.random.default_rng(3), "qdq", False, TINY)
    made.start((1, 3, 6, 6))
    ends = [made.constant("scale", np.float32(0.0001)), made.constant("zero", np.int16(0))]
    tensor = made.node("Tanh", [made.node("DequantizeLinear", ["x", *ends])])
    made.tensor = made.node("QuantizeLinear", [tensor, *ends])
    with pytest.raises(ModelError) as caught:
        import_model(made.serialise(input_type=np.int16, opset=21), "net.onnx")
    assert str(caught.value) == (
        f"net.onnx: no layer can run on the accelerator (Tanh '{node_name(made, 'Tanh')}': 'x' is of 16 bits); it "
        "needs a quantised convolution, matrix product or pointwise operator between tensors of 8 bits, which the "
        f"int16 tensor 'x' is not; {NARROW}"
    )


def test_a_product_in_float_after_16_bits_for_another_reason():
    made = convolved()
    made.quantise(widened(made, made.dequantised()), *made.quantisation(0.02, 3), made.shape)
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4))
    bias = [name for name in made.constants if name.startswith("bs")][-1]
    made.constants[bias] = made.value(bias) * np.float32(1.7)
    assert refusal(made) == (
        f"net.onnx: ONNX Runtime computes Conv '{node_name(made, 'Conv')}' in float, because the bias "
        f"'{node_name(made, 'DequantizeLinear')}_out' of channel 0 is no whole multiple of input scale times weight "
        "scale; use a bias quantised with that scale (Brevitas: bias_quant=Int32Bias)"
    )


@pytest.mark.parametrize("reshaped", [False, True])
def test_a_sum_of_16_bits(reshaped: bool):
    made = convolved()
    first, before = made.tensor, widened(made, made.dequantised())
    made.product("Conv", (4, 4, 1, 1), 0, made.shape)
    second, product = made.tensor, node_name(made, "Conv")
    tensor = made.node("Add", [before, widened(made, made.dequantised())])
    total, wide = made.nodes[-1].name, wide_name(made, -1)
    shape = (1, 64, 1, 1) if reshaped else made.shape
    if reshaped:
        tensor = made.node("Reshape", [tensor, made.constant("shape", np.array([-1, *shape[1:]]))])
    finish(made, widened(made, tensor), shape=shape)
    assert refusal(made) == (
        f"net.onnx: Add '{total}' between Conv '{product}' and Conv '{node_name(made, 'Conv')}' is not supported: it "
        f"combines 2 activations ('{second}', '{first}'), and ONNX Runtime computes with the int16 tensor '{wide}' in "
        f"float; {REMEDY}"
    )


def test_an_average_of_16_bits():
    made = convolved()
    product = node_name(made, "Conv")
    tensor = made.node("GlobalAveragePool", [widened(made, made.dequantised())])
    wide, average = wide_name(made, -1), made.nodes[-1].name
    finish(made, tensor, shape=(1, 4, 1, 1))
    assert refusal(made) == (
        f"net.onnx: GlobalAveragePool '{average}' between Conv '{product}' and Conv '{node_name(made, 'Conv')}' is not "
        f"supported: ONNX Runtime averages the int16 tensor '{wide}' in float; {REMEDY}"
    )


def test_the_core_has_the_bytes_of_16_bits_in_between():
    made = convolved()
    tensor = widened(made, made.dequantised())
    finish(made, widened(made, made.pointwise(tensor, "HardSwish"), np.uint16, 0.00007))
    assert_right(verify(made.serialise(opset=21), PRESETS["tiny"], samples=1))


# Networks with 16-bit tensors beside all else that random graphs of codes have, and on the simulated core.

# Random graphs of codes in which 16-bit tensors stand between pointwise operators, beside all else that they have.


class GraphOfWideCodes(GraphOfCodes):
    """A :class:`GraphOfCodes` with 16 bits in front of and after activations, layout and pooling."""

    def __init__(self, seed: int):
        #: Its own, so that the graphs are those of the same seed without 16 bits.
        self._wide = np.random.default_rng([seed, 16])
        super().__init__(seed)

    def _dequantise(self, item: Codes) -> str:
        return self._widen(super()._dequantise(item), 0.3)

    def _layout(self, tensor: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
        tensor, shape = super()._layout(tensor, shape)
        return self._widen(tensor, 0.5), shape

    def _widen(self, tensor: str, probability: float) -> str:
        """16 bits for a float tensor: fine, or so coarse that they decide codes; now and then some values are cut."""
        while self._wide.random() < probability:
            dtype, scale = WIDE[self._wide.integers(2)], float(self._wide.choice([0.0003, 0.0001, 0.00002, 0.02]))
            zero = int(self._wide.choice([0, 0, 5000, -30000]))
            tensor = widened(self.maker, tensor, dtype, scale, zero, domain="com.microsoft")
        return tensor


def graphs(*seeds: int) -> Iterator[Generated]:
    return (GraphOfWideCodes(seed).finish() for seed in range(*seeds))


@pytest.mark.regress
def test_random_graphs() -> None:
    assert accepted(graphs(12), "wide_graph", samples=2) > 9


@pytest.mark.regress
def test_many_random_graphs() -> None:
    assert accepted(graphs(12, 1000), "wide_graph", samples=2) > 800


def test_the_core_has_the_bytes_of_places_that_share_a_table() -> None:
    made = repeated(3)
    made.product("Conv", (4, 4, 1, 1), 0, made.shape, bias=False)
    assert_right(verify(made.serialise(opset=21), PRESETS["tiny"], samples=2))


def test_the_core_has_the_bytes_of_a_random_graph() -> None:
    found = verify(GraphOfWideCodes(12).finish().model, PRESETS["tiny"], samples=1)
    assert found.bytes
    assert not found.mismatched_bytes
