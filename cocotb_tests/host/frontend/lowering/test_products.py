"""Products that need more than a layer of their own: of two activations, and with auto_pad SAME."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

from cocotb_tests.support.networks.generated import FORMS, TINY, Maker
from cocotb_tests.support.networks.small_models import Matrices
from cocotb_tests.support.oracles.exactness import assert_exact, assert_right, layer_types, needs_reference
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError, compile_model, plan_graph
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.frontend.lowering import products
from lutterfly.host.graph import Arrange, Concat, Convolution, MatrixProduct, MaxPool
from lutterfly.host.program import SpreadBy
from lutterfly.host.session.verify import verify

pytestmark = needs_reference
FORMS_AND_TYPES = pytest.mark.parametrize(("qdq", "unsigned"), [*itertools.product((False, True), repeat=2)])
#: Each with how many layers are products: one for each matrix of a stack.
SHAPES = {
    "square": ((1, 8, 8), (1, 8, 8), 1),
    "beyond words and columns": ((1, 9, 19), (1, 19, 11), 1),
    "one column": ((1, 5, 16), (1, 16, 1), 1),
    "one row": ((1, 1, 16), (1, 16, 5), 1),
    "one term": ((1, 6, 1), (1, 1, 5), 1),
    "stack": ((1, 3, 6, 10), (1, 3, 10, 7), 3),
}


def codes(found: Matrices, seed: int = 0) -> dict[str, np.ndarray]:
    """All codes, as far as there is room."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.uniform(-3, 3, shape).astype(np.float32) for name, shape in (("a", found.first), ("b", found.second))
    }


@pytest.mark.sampled(1)
@FORMS_AND_TYPES
@pytest.mark.parametrize("name", SHAPES)
def test_any_shapes(name: str, qdq: bool, unsigned: bool) -> None:
    first, second, products = SHAPES[name]
    found = Matrices(first, second, qdq=qdq, unsigned=unsigned)
    graph = assert_exact(found.model(), codes(found), covered=products == 1)
    assert layer_types(graph).count(MatrixProduct) == products
    assert_right(verify(found.model(), PRESETS["tiny"], samples=2))


@pytest.mark.demo_core
@pytest.mark.sampled(1)
@pytest.mark.parametrize("turned", [(0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 1, 2)])
def test_transposes_in_front_are_part_of_what_is_loaded(turned: tuple[int, ...]) -> None:
    """No layer moves the second operand in the graph."""
    second = [0] * 4
    for axis, size in zip(turned, (1, 2, 12, 5), strict=True):
        second[axis] = size
    found = Matrices((1, 2, 6, 12), tuple(second), ((), turned, ()))
    graph = assert_exact(found.model(), codes(found), covered=False)
    products = [layer for layer in graph.layers if isinstance(layer, MatrixProduct)]
    assert {layer.inputs[1] for layer in products} == {"t1"}
    assert_right(verify(found.model(), PRESETS["ecp5-85k"], samples=2))


def test_heads_side_by_side_are_channels() -> None:
    """As attention puts them: nothing is copied behind the products."""
    found = Matrices((1, 2, 6, 12), (1, 2, 12, 5), ((), (), (0, 2, 1, 3)))
    graph = import_model(found.model())
    last = layer_types(graph)[-2:]
    assert last == [Concat, Arrange], "the host reads an image"
    assert [layer.title for layer in graph.layers if isinstance(layer, Arrange)][-1] == "arrangement"
    assert_right(verify(found.model(), PRESETS["tiny"], samples=2))


def test_what_is_pooled_along_the_rows_is_an_image() -> None:
    """Whose pixels are the columns: nothing is moved in between."""
    found = Matrices((1, 8, 16), (1, 16, 10))
    model = onnx.load_from_string(found.model())
    last = model.graph.node[-1]
    last.output[0], scales = "numbers", last.input[1:]
    model.graph.node.extend(
        [
            helper.make_node("MaxPool", ["numbers"], ["pooled"], "pool", kernel_shape=[2], strides=[2]),
            helper.make_node("QuantizeLinear", ["pooled", *scales], ["codes"], "quantised"),
            helper.make_node("DequantizeLinear", ["codes", *scales], ["y"], "end"),
        ]
    )
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 5
    graph = assert_exact(model.SerializeToString(), codes(found), covered=True)
    assert layer_types(graph)[-2:] == [MatrixProduct, MaxPool]


@pytest.mark.parametrize(("zero_points", "name", "shown"), [((3, 0, 0), "a", 3), ((0, -128, 0), "b", -128)])
def test_zero_points_are_refused(zero_points: tuple[int, int, int], name: str, shown: int) -> None:
    found = Matrices((1, 4, 8), (1, 8, 4), zero_points=zero_points, qdq=False)
    with pytest.raises(ModelError) as refused:
        import_model(found.model())
    assert f"multiplies two activations, and the zero point {shown} of" in str(refused.value)


#: A matrix of more tiles than the weight memory of this accelerator has room for.
SMALL = dataclasses.replace(
    PRESETS["tiny"],
    memory=dataclasses.replace(PRESETS["tiny"].memory, feature_bytes=64 << 10, weight_bytes=4 << 10),
)
LARGE = Matrices((1, 4, 96), (1, 96, 64))


@pytest.mark.regress
def test_weights_that_no_memory_holds_come_in_parts() -> None:
    plan = plan_graph(import_model(LARGE.model()), SMALL)
    pieces = [arrival.size for arrival in plan.arrivals if arrival.memory is LocalMemory.WEIGHT]
    assert len(pieces) > 2
    assert sum(pieces) * SMALL.weight_word_bytes == 96 * 64


@pytest.mark.regress
def test_weights_that_no_memory_holds_come_in_parts_on_the_core() -> None:
    """Which is built for this test alone."""
    assert_right(verify(LARGE.model(), SMALL, samples=1))


@pytest.mark.regress
@pytest.mark.parametrize("spread_by", SpreadBy)
def test_several_cores(spread_by: SpreadBy) -> None:
    """Each loads what it has computed itself, from where it has put it."""
    config = dataclasses.replace(PRESETS["tiny"], cluster=ClusterConfig(cores=2))
    data = Matrices((1, 2, 6, 12), (1, 2, 12, 5)).model()
    if spread_by is SpreadBy.SAMPLE:
        assert_right(verify(data, config, samples=4, spread_by=spread_by))
        return
    with pytest.raises(CompileError, match="weights that another layer computes are of one core; use"):
        compile_model(data, config, spread_by=spread_by)


# Convolutions with auto_pad SAME and a stride larger than the kernel: ONNX Runtime leaves out rows and columns.

SAME = ("SAME_UPPER", "SAME_LOWER")


def convolution(
    auto_pad: str,
    sides: tuple[int, ...],
    kernel: int,
    stride: int,
    *,
    form: str = "qdq",
    channels: int = 3,
    groups: int = 1,
) -> bytes:
    made = Maker(np.random.default_rng(0), form, False, TINY)
    made.start((1, channels, *sides))
    rank = len(sides)
    made.product(
        "Conv",
        (channels, channels // groups, *[kernel] * rank),
        0,
        (1, channels, *(-(-side // stride) for side in sides)),
        auto_pad=auto_pad,
        group=groups,
        kernel_shape=[kernel] * rank,
        strides=[stride] * rank,
    )
    return made.serialise()


def feeds(*shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).integers(-128, 128, (1, *shape), np.int8)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("auto_pad", SAME)
@pytest.mark.parametrize("groups", [1, 3])
def test_rows_and_columns_are_left_out_as_onnx_runtime_does(auto_pad: str, form: str, groups: int):
    # Borders of -1 to -5: both roundings of the half.
    for kernel, sides in ((1, (9, 14)), (2, (11, 12)), (1, (12, 13))):
        graph = assert_exact(convolution(auto_pad, sides, kernel, 7, form=form, groups=groups), feeds(3, *sides))
        assert [type(layer) for layer in graph.layers] == [Convolution]


@pytest.mark.regress
@pytest.mark.parametrize("auto_pad", SAME)
def test_one_dimension(auto_pad: str):
    for side in range(5, 17):
        assert_exact(convolution(auto_pad, (side,), 1, 8), feeds(3, side))


def test_every_convolution_is_compared_with_onnx_runtime(monkeypatch):
    data = convolution("SAME_UPPER", (12, 12), 1, 4)
    import_model(data)
    monkeypatch.setattr(products, "skipped", lambda *_: (0, 0))
    with pytest.raises(
        ModelError,
        match=r"^model: ONNX Runtime gives other bytes for Conv '.*' than its layers "
        r"here; replace the operator, and report the model$",
    ):
        import_model(data)
