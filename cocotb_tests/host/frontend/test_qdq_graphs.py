"""The plain model in ONNX Runtime is the reference: graphs in which it merges quantisations across operators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.generated import TINY, Generated, Maker
from cocotb_tests.support.networks.qdq_graphs import GraphOfCodes
from cocotb_tests.support.oracles.exactness import REGRESSIONS, accepted, assert_answers, assert_exact, needs_reference
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.frontend import ModelError, import_model
from lutterfly.host.model import executed, reference, runtime
from lutterfly.host.model.model import Model
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

#: What may stand between two quantisations that ONNX Runtime merges.
BETWEEN = {
    "nothing": (),
    "identity": (("Identity", {}),),
    "dropout": (("Dropout", {}),),
    "transposes": (("Transpose", {"perm": [0, 2, 3, 1]}), ("Transpose", {"perm": [0, 3, 1, 2]})),
}


def requantised(between: str, *, unsigned: bool = False, scale: float = 0.05) -> Maker:
    """A convolution whose codes are quantised twice in a row."""
    made = Maker(np.random.default_rng(3), "qdq", unsigned, TINY)
    made.start((1, 3, 6, 6))
    made.product("Conv", (4, 3, 3, 3), 0, (1, 4, 4, 4))
    made.constants[made.zero] = np.array(128 + 5 if unsigned else 5, made.dtype)
    tensor = made.dequantised()
    for operator, attributes in BETWEEN[between]:
        tensor = made.node(operator, [tensor], **attributes)
    made.quantise(tensor, *made.quantisation(scale, -20), made.shape)
    return made


def feeds(made: Maker, seed: int) -> dict[str, np.ndarray]:
    limits = np.iinfo(made.dtype)
    return {"x": np.random.default_rng(seed).integers(limits.min, limits.max + 1, made.input_shape, made.dtype)}


def exact(made: Maker) -> None:
    data = made.serialise()
    assert_exact(data, feeds(made, 0))
    assert_answers(data, feeds(made, 1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("after", ["nothing", "convolution", "sum", "concatenation"])
def test_codes_that_are_quantised_again(between: str, after: str, unsigned: bool):
    made = requantised(between, unsigned=unsigned)
    if after == "convolution":
        made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4), bias=False)
    elif after == "sum":
        made.quantise(made.node("Add", [made.dequantised()] * 2), *made.quantisation(0.1, 3), made.shape)
    elif after == "concatenation":
        made.quantise(made.node("Concat", [made.dequantised()] * 2, axis=1), *made.quantisation(0.06, 3), (1, 8, 4, 4))
    exact(made)


def test_both_scales_are_seen():
    """ONNX Runtime's answer is not that of the model as it is written, so that the tests above can fail."""
    made = requantised("nothing")
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4), bias=False)
    data = made.serialise()
    written = runtime.plain_session(onnx.load_from_string(data)).run(None, feeds(made, 0))[0]
    assert (written != reference.run(Model(data), feeds(made, 0), [made.tensor])[made.tensor]).mean() > 0.05


def test_a_merged_scale_that_does_not_fit_a_bias():
    made = requantised("identity", scale=0.2)
    again = made.nodes[-1].name
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4))
    conv = [node.name for node in made.nodes if node.op_type == "Conv"][1]
    with pytest.raises(ModelError) as caught:
        import_model(made.serialise())
    assert str(caught.value) == (
        f"model: ONNX Runtime computes Conv '{conv}' in float, because QuantizeLinear '{again}' quantises codes again; "
        "ONNX Runtime merges both quantisations, and the bias does not fit the scale; quantise the tensor once"
    )


def test_the_core_has_the_bytes_of_the_plain_model():
    made = requantised("transposes")
    made.product("Conv", (2, 4, 1, 1), 0, (1, 2, 4, 4), bias=False)
    report = verify(made.serialise(), PRESETS["tiny"], samples=1)
    assert report.bytes
    assert not report.mismatched_bytes


@pytest.mark.regress
def test_a_head_is_run_as_it_stands_in_the_network():
    """Codes between two quantisations have another reader there, so that ONNX Runtime does not merge them; by itself
    the head has none."""
    data = (REGRESSIONS / "quantised_twice_in_a_head.onnx").read_bytes()
    shape, rng = (1, 2, 5, 2), np.random.default_rng(8)
    samples = [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(5)]
    for sample in samples:
        assert_answers(data, {"x": sample})
    plain, session = executed.open_session(Model(data)), InferenceSession(data, PRESETS["tiny"])
    for sample in samples[:2]:
        expected = plain.run(None, {"x": sample})
        for found, wanted in zip(session.run(None, {"x": sample}), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def graphs(*seeds: int) -> Iterator[Generated]:
    return (GraphOfCodes(seed).finish() for seed in range(*seeds))


@pytest.mark.regress
def test_random_graphs():
    assert accepted(graphs(16), "qdq_graph", samples=3) > 12


@pytest.mark.regress
def test_many_random_graphs():
    assert accepted(graphs(16, 2000), "qdq_graph", samples=3) > 1500
