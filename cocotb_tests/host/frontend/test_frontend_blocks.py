"""Networks of blocks: groups, residual sums, averages, concatenated and split channels have ONNX Runtime's bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker
from cocotb_tests.support.oracles.exactness import assert_exact_on_codes as exact
from cocotb_tests.support.oracles.exactness import layer_types, needs_reference
from lutterfly.host.frontend import describe, import_model
from lutterfly.host.frontend.build import Build
from lutterfly.host.frontend.fragments import Fragment, Kind
from lutterfly.host.frontend.lowerings import LOWERINGS
from lutterfly.host.graph import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    MaxPool,
    Pad,
    Pointwise,
    Slice,
    Window,
)

pytestmark = needs_reference
BOTH_TYPES = pytest.mark.parametrize("unsigned", [False, True])
BOTH_FORMS = pytest.mark.parametrize("form", FORMS)


def maker(shape: tuple[int, ...], form: str = "qdq", *, unsigned: bool = False, scale: float = 0.02) -> Maker:
    made = Maker(np.random.default_rng(1), form, unsigned, TINY)
    made.start(shape, scale)
    return made


@pytest.mark.sampled(5)
@BOTH_TYPES
@BOTH_FORMS
@pytest.mark.parametrize(("channels", "groups", "outputs"), [(4, 4, 4), (4, 2, 6), (3, 3, 9), (1, 1, 5)])
def test_groups(channels: int, groups: int, outputs: int, form: str, unsigned: bool):
    made = maker((1, channels, 6, 7), form, unsigned=unsigned)
    made.product("Conv", (outputs, channels // groups, 3, 2), 0, (1, outputs, 4, 6), group=groups)
    (layer,) = exact(made).layers
    assert (layer.groups, layer.weights.shape) == (groups, (outputs, 3, 2, channels // groups))


@BOTH_FORMS
def test_groups_of_one_pixel_are_no_matrix_product(form: str):
    made = maker((1, 4, 1, 1), form)
    made.product("Conv", (6, 2, 1, 1), 0, (1, 6, 1, 1), group=2)
    (layer,) = exact(made).layers
    assert (layer.groups, layer.weights.shape) == (2, (6, 1, 1, 2))


def residual(made: Maker, *, swap: bool = False, relu: bool = False) -> None:
    """Add to the current feature map a convolution of it."""
    tensor, scale, zero, shape = made.tensor, made.scale, made.zero, made.shape
    skip = made.dequantised()
    made.product("Conv", (shape[1], shape[1], 1, 1), 0, shape)
    operands = [(tensor, scale, zero), (made.tensor, made.scale, made.zero)]
    sum_scale, sum_zero = made.quantisation(0.03, -128 if relu else None)
    if made.form == "qop":
        first, second = operands[::-1] if swap else operands
        made.tensor = made.node("QLinearAdd", [*first, *second, sum_scale, sum_zero], domain="com.microsoft")
        made.scale, made.zero = sum_scale, sum_zero
        return
    floats = [skip, made.dequantised()]
    added = made.node("Add", floats[::-1] if swap else floats)
    made.quantise(made.node("Relu", [added]) if relu else added, sum_scale, sum_zero, shape)


@pytest.mark.sampled(2)
@BOTH_TYPES
@BOTH_FORMS
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("relu", [False, True])
def test_a_residual_sum(relu: bool, swap: bool, form: str, unsigned: bool):
    made = maker((1, 3, 6, 6), form, unsigned=unsigned)
    residual(made, swap=swap, relu=relu)
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 6, 6))
    graph = exact(made)
    assert layer_types(graph) == [Convolution, Add, Convolution]
    assert graph.layers[1].inputs == tuple(("x", graph.layers[0].output)[:: -1 if swap else 1])
    assert [row.kind for row in describe(graph)][1] == "addition"


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_a_table_after_a_sum_is_fused(form: str):
    made = maker((1, 3, 6, 6), form)
    residual(made)
    made.activation("Tanh")
    graph = exact(made)
    assert layer_types(graph) == [Convolution, Add]
    assert graph.layers[1].table is not None
    assert graph.layers[1].inner != graph.layers[1].output


@pytest.mark.sampled(2)
@BOTH_TYPES
@BOTH_FORMS
def test_a_tensor_plus_itself_is_a_table(form: str, unsigned: bool):
    made = maker((1, 3, 6, 6), form, unsigned=unsigned)
    scale, zero = made.quantisation(0.05)
    if form == "qop":
        ends = [made.tensor, made.scale, made.zero]
        made.tensor = made.node("QLinearAdd", [*ends, *ends, scale, zero], domain="com.microsoft")
        made.scale, made.zero = scale, zero
    else:
        tensor = made.dequantised()
        made.quantise(made.node("Add", [tensor, tensor]), scale, zero, made.shape)
    assert layer_types(exact(made)) == [Pointwise]


@pytest.mark.regress
def test_sums_of_the_two_sums_before():
    """More ways lead from the input to the first convolution than could be walked."""
    made = maker((1, 3, 2, 2), "qop")
    before = (made.tensor, made.scale, made.zero)
    for _ in range(60):
        ends = [*before, made.tensor, made.scale, made.zero]
        before = (made.tensor, made.scale, made.zero)
        made.scale, made.zero = made.quantisation(0.03)
        made.tensor = made.node("QLinearAdd", [*ends, made.scale, made.zero], domain="com.microsoft")
    made.product("Conv", (2, 3, 1, 1), 0, (1, 2, 2, 2))
    assert layer_types(exact(made)) == [Pointwise, *[Add] * 59, Convolution]


def test_a_tensor_plus_a_view_of_it():
    made = maker((1, 3, 1, 4), "qop")
    view = made.node("Reshape", ["x", made.constant("shape", np.array([-1, 3, 4, 1]))])
    view = made.node("Reshape", [view, made.constant("shape", np.array([-1, 3, 1, 4]))])
    ends = ["x", made.scale, made.zero, view, made.scale, made.zero]
    made.tensor = made.node("QLinearAdd", [*ends, *made.quantisation(0.03)], domain="com.microsoft")
    graph = exact(made, covered=False)
    assert [layer.inputs for layer in graph.layers] == [("x", "x")]


@pytest.mark.sampled(5)
@BOTH_TYPES
@BOTH_FORMS
@pytest.mark.parametrize("sides", [(5, 6), (1, 1), (9,)])
def test_the_average_of_a_map(sides: tuple[int, ...], form: str, unsigned: bool):
    made = maker((1, 5, *sides), form, unsigned=unsigned)
    scale, zero = made.quantisation(0.013)
    shape = (1, 5, *(1 for _ in sides))
    if form == "qop":
        ends = [made.tensor, made.scale, made.zero, scale, zero]
        made.tensor = made.node("QLinearGlobalAveragePool", ends, domain="com.microsoft")
        made.scale, made.zero, made.shape = scale, zero, shape
    else:
        made.quantise(made.node("GlobalAveragePool", [made.dequantised()]), scale, zero, shape)
    made.flatten()
    made.product("Gemm", (7, 5), 0, (1, 7), transB=1)
    graph = exact(made)
    assert layer_types(graph)[0] is AveragePool
    assert graph.layers[0].window.kernel == (1, *sides)[-2:]


@pytest.mark.sampled(6)
@BOTH_TYPES
@BOTH_FORMS
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 3]},
        {"kernel_shape": [1, 5], "strides": [2, 3]},
        {"kernel_shape": [7, 7]},
        {"kernel_shape": [3, 5], "pads": [1, 2, 0, 1], "count_include_pad": 1},
    ],
)
def test_averages_of_an_odd_number_of_elements_with_one_scale(attributes: dict, form: str, unsigned: bool):
    made = maker((1, 4, 8, 9), form, unsigned=unsigned)
    if form == "qop":
        ends = [made.tensor, made.scale, made.zero, made.scale, made.zero]
        made.tensor = made.node("QLinearAveragePool", ends, domain="com.microsoft", **attributes)
    else:
        made.quantise(made.node("AveragePool", [made.dequantised()], **attributes), made.scale, made.zero, ())
    assert layer_types(exact(made)) == [AveragePool]


@BOTH_FORMS
def test_an_average_that_reads_codes_with_another_scale_than_they_were_made_with(form: str):
    made = maker((1, 3, 6, 6), form)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    made.scale, entering = made.quantisation(0.05)[0], made.value(made.scale)
    assert made.value(made.scale) != entering
    leaving = made.quantisation(0.04, 0)
    made.quantise(made.node("GlobalAveragePool", [made.dequantised()]), *leaving, (1, 4, 1, 1))
    made.product("Conv", (3, 4, 1, 1), 0, (1, 3, 1, 1))
    assert layer_types(exact(made)) == [Convolution, AveragePool, Convolution]


@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_mean_over_the_spatial_axes(keepdims: int):
    made = maker((1, 4, 3, 5))
    mean = made.node("ReduceMean", [made.dequantised(), made.constant("axes", np.array([-1, 2]))], keepdims=keepdims)
    made.quantise(mean, made.scale, made.zero, ())
    assert layer_types(exact(made)) == [AveragePool]


def joined(made: Maker, axis: int = 1) -> None:
    """Concatenate the input, a convolution of it with another scale, and the input again."""
    first = (made.tensor, made.scale, made.zero)
    floats = [made.dequantised()]
    channels = made.shape[1]
    made.product("Conv", (5, channels, 1, 1), 0, (1, 5, *made.shape[2:]))
    second = (made.tensor, made.scale, made.zero)
    shape = (1, 2 * channels + 5, *made.shape[2:])
    if made.form == "qop":
        output = made.node("QLinearConcat", [*first[1:], *first, *second, *first], domain="com.microsoft", axis=axis)
        made.tensor, made.scale, made.zero, made.shape = output, *first[1:], shape
    else:
        floats.append(made.dequantised())
        made.quantise(made.node("Concat", [*floats, floats[0]], axis=axis), *first[1:], shape)


@pytest.mark.sampled
@BOTH_TYPES
@BOTH_FORMS
@pytest.mark.parametrize("axis", [1, -3])
def test_concatenated_channels(axis: int, form: str, unsigned: bool):
    made = maker((1, 3, 4, 5), form, unsigned=unsigned)
    joined(made, axis)
    made.product("Conv", (2, 11, 3, 3), 0, (1, 2, 2, 3))
    graph = exact(made)
    assert layer_types(graph) == [Convolution, Concat, Convolution]
    assert [table is None for table in graph.layers[1].tables] == [True, False, True]
    assert graph.layers[1].inputs == ("x", graph.layers[0].output, "x")


def test_operators_beside_a_concatenation_become_tables():
    made = maker((1, 3, 4, 5))
    plain, squashed = made.dequantised(), made.node("Tanh", [made.dequantised()])
    tensor = made.node("Relu", [made.node("Concat", [plain, squashed], axis=1)])
    made.quantise(tensor, made.scale, made.zero, ())
    graph = exact(made)
    assert layer_types(graph) == [Concat]


def test_concatenated_vectors_and_channels_that_are_last():
    made = maker((1, 4, 5, 3), "qop")
    made.tensor = made.node("Concat", ["x", "x"], axis=3)
    made.tensor = made.node("Transpose", [made.tensor], perm=[0, 3, 1, 2])
    made.shape = (1, 6, 4, 5)
    made.product("Conv", (2, 6, 4, 5), 0, (1, 2, 1, 1))
    made.tensor = made.node("Flatten", [made.tensor])
    made.tensor = made.node("Concat", [made.tensor, made.tensor], axis=1)
    made.shape = (1, 4)
    made.product("Gemm", (3, 4), 0, (1, 3), transB=1)
    assert layer_types(exact(made)) == [Concat, Convolution, Concat, Convolution]


@pytest.mark.sampled(1)
@BOTH_TYPES
@BOTH_FORMS
@pytest.mark.parametrize("operator", ["Split", "Slice"])
def test_split_channels(operator: str, form: str, unsigned: bool):
    made = maker((1, 7, 4, 5), form, unsigned=unsigned)
    trunk = made.scale, made.zero
    tensor = made.tensor if form == "qop" else made.dequantised()
    if operator == "Split":
        parts = [f"part{index}" for index in range(2)]
        made.node("Split", [tensor, made.constant("sizes", np.array([4, 3]))], parts[0], axis=1)
        made.nodes[-1].output.append(parts[1])
    else:
        bounds = [
            [made.constant("bound", np.array(value)) for value in values]
            for values in (([0, 0], [99, 4], [2, 1]), ([4], [7], [-3]))
        ]
        parts = [made.node("Slice", [tensor, *operands]) for operands in bounds]
    ends = []
    for part, channels in zip(parts, (4, 3), strict=True):
        made.scale, made.zero = trunk
        made.tensor = part
        if form == "qdq":
            made.quantise(part, *trunk, ())
        made.product("Conv", (2, channels, 1, 1), 0, (1, 2, 4, 5))
        ends.append(made.tensor)
    graph = exact(made, outputs=tuple(ends))
    assert [(layer.first, layer.channels) for layer in graph.layers if isinstance(layer, Slice)] == [(0, 4), (4, 3)]


def test_operators_after_a_split_become_tables():
    made = maker((1, 6, 4, 5))
    made.node("Split", [made.dequantised()], "left", axis=1, num_outputs=2)
    made.nodes[-1].output.append("right")
    scale, zero = made.quantisation(0.01)
    made.quantise(made.node("Relu", ["left"]), scale, zero, ())
    left = made.tensor
    made.quantise(made.node("Tanh", ["right"]), scale, zero, ())
    graph = exact(made, outputs=(left, made.tensor))
    assert layer_types(graph) == [Slice, Pointwise] * 2


def padded(made: Maker, pads: list[int], shape: tuple[int, ...]) -> None:
    """Pad the current tensor with zeros."""
    zero = made.zero if made.form == "qop" else made.constant("nothing", np.float32(0))
    tensor = made.tensor if made.form == "qop" else made.dequantised()
    padded_tensor = made.node("Pad", [tensor, made.constant("pads", np.array(pads)), zero])
    if made.form == "qop":
        made.tensor, made.shape = padded_tensor, shape
    else:
        made.quantise(padded_tensor, made.scale, made.zero, shape)


@pytest.mark.sampled(1)
@BOTH_TYPES
@BOTH_FORMS
def test_a_border_becomes_part_of_the_windows_that_read_it(form: str, unsigned: bool):
    made = maker((1, 3, 6, 6), form, unsigned=unsigned)
    made.product("Conv", (4, 3, 1, 1), 0, (1, 4, 6, 6))
    padded(made, [0, 0, 1, 0, 0, 0, 2, 3], (1, 4, 9, 9))
    trunk = made.tensor, made.scale, made.zero, made.shape
    made.product("Conv", (4, 1, 3, 3), 0, (1, 4, 4, 4), group=4, strides=[2, 2])
    first = made.tensor
    made.tensor, made.scale, made.zero, made.shape = trunk
    made.product("Conv", (2, 4, 3, 3), 0, (1, 2, 7, 9), pads=[0, 1, 0, 1])
    graph = exact(made, outputs=(first, made.tensor))
    assert layer_types(graph) == [Convolution] * 3
    assert graph.layers[1].window == Window((3, 3), (2, 2), pads=(1, 0, 2, 3))
    assert graph.layers[2].window == Window((3, 3), pads=(1, 1, 2, 4))


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_a_border_after_a_border(form: str):
    made = maker((1, 3, 6, 6), form)
    padded(made, [0, 0, 1, 0, 0, 0, 0, 0], (1, 3, 7, 6))
    padded(made, [0, 0, 0, 1, 0, 0, 2, 0], (1, 3, 9, 7))
    made.product("Conv", (2, 3, 3, 3), 0, (1, 2, 7, 5))
    (layer,) = exact(made).layers
    assert layer.window.pads == (1, 1, 2, 0)


@pytest.mark.sampled(1)
@BOTH_FORMS
@pytest.mark.parametrize("zero_point", [-128, 3])
def test_a_border_of_max_pooling(zero_point: int, form: str):
    made = maker((1, 3, 6, 6), form)
    made.constants[made.zero] = np.int8(zero_point)
    padded(made, [0, 0, 1, 1, 0, 0, 1, 1], (1, 3, 8, 8))
    made.max_pool()
    made.flatten()
    made.product("Gemm", (2, made.shape[1]), 0, (1, 2), transB=1)
    assert layer_types(exact(made)) == ([MaxPool, Convolution] if zero_point == -128 else [Pad, MaxPool, Convolution])


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_a_border_that_leaves_the_accelerator(form: str):
    made = maker((1, 3, 6, 6), form)
    padded(made, [0, 0, 1, 1, 0, 0, 1, 1], (1, 3, 8, 8))
    leaving = made.tensor
    made.product("Conv", (2, 3, 3, 3), 0, (1, 2, 6, 6))
    assert layer_types(exact(made, outputs=(leaving, made.tensor))) == [Pad, Convolution]


def test_a_border_in_front_of_a_transpose():
    made = maker((1, 6, 5, 3), "qop")
    padded(made, [0, 1, 0, 0, 0, 0, 1, 0], (1, 7, 6, 3))
    made.tensor, made.shape = made.node("Transpose", [made.tensor], perm=[0, 3, 1, 2]), (1, 3, 7, 6)
    made.product("Conv", (2, 3, 3, 3), 0, (1, 2, 5, 4))
    (layer,) = exact(made).layers
    assert layer.window.pads == (1, 0, 0, 1)


def test_a_border_with_operators_around_it():
    made = maker((1, 3, 6, 6))
    pads = [made.constant("pads", np.array([2, 1])), "", made.constant("axes", np.array([3]))]
    tensor = made.node("Relu", [made.node("Pad", [made.node("Tanh", [made.dequantised()]), *pads])])
    made.quantise(tensor, *made.quantisation(0.01), (1, 3, 6, 9))
    made.product("Conv", (2, 3, 3, 3), 0, (1, 2, 4, 7))
    graph = exact(made)
    assert layer_types(graph) == [Pointwise, Convolution]
    assert graph.layers[1].window.pads == (0, 2, 0, 1)


@pytest.mark.sampled(1)
@BOTH_FORMS
def test_products_with_and_sums_of_scalar_constants_are_one_table(form: str):
    made = maker((1, 3, 6, 6), form)
    for operator, value in (("Mul", 1.7), ("Add", 0.3), ("Sub", 0.1), ("Div", 3.1)):
        scale, zero = made.quantisation(0.03)
        if form == "qop" and operator in ("Mul", "Add"):
            operand = [made.constant("operand", np.array([[[[97]]]], np.int8)), *made.quantisation(0.02)]
            ends = [made.tensor, made.scale, made.zero, *operand, scale, zero]
            made.tensor = made.node(f"QLinear{operator}", ends, domain="com.microsoft")
            made.scale, made.zero = scale, zero
        else:
            tensor = made.node(operator, [made.dequantised(), made.constant("operand", np.float32([[value]]))])
            made.quantise(tensor, scale, zero, made.shape)
    (layer,) = exact(made).layers
    assert isinstance(layer, Pointwise)


def gated(made: Maker) -> None:
    """x * sigmoid(x), quantised in between."""
    trunk = made.tensor, made.scale, made.zero
    made.activation("Sigmoid")
    gate = made.tensor, made.scale, made.zero
    scale, zero = made.quantisation(0.015)
    if made.form == "qop":
        made.tensor = made.node("QLinearMul", [*trunk, *gate, scale, zero], domain="com.microsoft")
        made.scale, made.zero = scale, zero
    else:
        operands = [made.node("DequantizeLinear", operand) for operand in (trunk, gate)]
        made.quantise(made.node("Mul", operands), scale, zero, made.shape)


@pytest.mark.sampled(1)
@BOTH_TYPES
@BOTH_FORMS
def test_operators_on_a_tensor_and_a_function_of_it_are_one_table(form: str, unsigned: bool):
    made = maker((1, 3, 6, 6), form, unsigned=unsigned)
    made.product("Conv", (4, 3, 1, 1), 0, (1, 4, 6, 6))
    gated(made)
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 6, 6))
    graph = exact(made)
    assert layer_types(graph) == [Convolution, Convolution]
    assert graph.layers[0].table is not None
    assert [view.table is None for view in graph.tensors[graph.layers[0].inner].views] == [True, False]


def test_a_gate_that_leaves_the_accelerator_is_computed():
    made = maker((1, 3, 6, 6))
    gated(made)
    gate = next(node.output[0] for node in made.nodes if node.op_type == "QuantizeLinear")
    assert layer_types(exact(made, outputs=(gate, made.tensor))) == [Pointwise, Pointwise]


@BOTH_FORMS
def test_what_the_accelerator_cannot_run_runs_on_the_host_at_the_end(form: str):
    made = maker((1, 3, 6, 6), form)
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    leaving = made.tensor
    made.quantise(made.node("AveragePool", [made.dequantised()], kernel_shape=[2, 2]), made.scale, made.zero, ())
    graph = exact(made, covered=False)
    assert (layer_types(graph), graph.outputs) == ([Convolution], [leaving])
    assert [row.where for row in describe(graph)] == ["accelerator", "host"]


def test_a_refused_fragment_does_not_lower_those_before_it_again(monkeypatch: pytest.MonkeyPatch):
    lowered, linear = [], LOWERINGS[Kind.LINEAR]

    def counted(build: Build, fragment: Fragment) -> None:
        lowered.append(fragment.label)
        linear.lower(build, fragment)

    monkeypatch.setitem(LOWERINGS, Kind.LINEAR, dataclasses.replace(linear, lower=counted))
    made = maker((1, 3, 6, 6))
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    made.product("Conv", (4, 4, 1, 1), 0, (1, 4, 4, 4))
    made.quantise(made.node("AveragePool", [made.dequantised()], kernel_shape=[2, 2]), made.scale, made.zero, ())
    import_model(made.serialise())
    assert len(lowered) == len(set(lowered)) == 2


def test_layers_before_a_fragment_that_is_refused_at_the_beginning_go_to_the_host_with_it():
    made = maker((1, 4, 6, 6))
    made.quantise(made.node("Relu", [made.dequantised()]), made.scale, made.zero, made.shape)
    average = made.node("AveragePool", [made.dequantised()], kernel_shape=[2, 2])
    made.quantise(average, made.scale, made.zero, (1, 4, 5, 5))
    averaged = made.tensor
    made.product("Conv", (2, 4, 3, 3), 0, (1, 2, 3, 3))
    graph = exact(made, covered=False)
    assert (layer_types(graph), graph.inputs) == ([Convolution], [averaged])


def test_what_the_accelerator_cannot_run_runs_on_the_host_at_the_beginning():
    made = maker((1, 4, 6, 6))
    tensor = made.dequantised()
    made.quantise(made.node("CumSum", [tensor, made.constant("axis", np.int64(2))]), made.scale, made.zero, made.shape)
    summed = made.tensor
    made.product("Conv", (2, 4, 3, 3), 0, (1, 2, 4, 4))
    graph = exact(made, covered=False)
    assert (layer_types(graph), graph.inputs) == ([Convolution], [summed])
