"""The layer to train: in float its dense equivalent, in fixed point the golden functions, bit for bit."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocotb_tests.support.networks.butterflies import patterns
from lutterfly.golden.numerics.butterfly import Density, Direction, Pattern
from lutterfly.golden.numerics.fpc import fast_pointwise

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from lutterfly.train import FastPointwiseConv2d  # noqa: E402
from lutterfly.train.layers.fixed_point import FixedPoint  # noqa: E402


def layer_of(pattern: Pattern, seed: int, **known: object) -> FastPointwiseConv2d:
    """A layer with random weights; any order of the distances."""
    torch.manual_seed(seed)
    settings = {"densities": pattern.densities, "skips": pattern.skips} | known
    layer = FastPointwiseConv2d(pattern.inputs, pattern.outputs, **settings)
    if pattern.distances != layer.pattern.distances:
        layer.pattern = pattern
        layer.orders = torch.stack([torch.arange(pattern.width) ^ distance for distance in pattern.distances])
    with torch.no_grad():
        for weights in (*layer.own.values(), *layer.cross.values()):
            weights.uniform_(-1.9, 1.9)
        if layer.bias is not None:
            layer.bias.normal_()
    return layer


def plain_matrix(layer: FastPointwiseConv2d) -> torch.Tensor:
    """The dense matrix, from the weights pair by pair: gradients reach them through it."""
    pattern = layer.pattern
    entering = [torch.eye(pattern.width, dtype=torch.float64)]
    for stage, distance in enumerate(pattern.distances):
        rows = []
        for index in range(pattern.width):
            own = layer.own[str(stage)][index] if pattern.densities[stage].trains_own else 1
            cross = layer.cross[str(stage)][index] if pattern.densities[stage].trains_cross else 1
            row = own * entering[-1][index] + cross * entering[-1][index ^ distance]
            row = row / (2 if layer.growth_shifts[stage] else 1)
            for first, last in pattern.skips:
                row = row + entering[first][index] if last == stage else row
            rows.append(row)
        entering.append(torch.stack(rows))
    return entering[-1][: pattern.outputs, : pattern.inputs]


@settings(max_examples=30)
@given(patterns(most=20), st.integers(0, 1 << 16))
def test_float_and_its_gradients_are_those_of_the_dense_equivalent(pattern: Pattern, seed: int):
    layer = layer_of(pattern, seed).double()
    values = torch.randn(2, pattern.inputs, 3, 2, dtype=torch.float64, requires_grad=True)
    wanted = torch.einsum("oi,bihw->bohw", plain_matrix(layer), values) + layer.bias[:, None, None]
    toward = torch.randn_like(wanted)
    parameters = [values, *layer.parameters()]
    gradients = torch.autograd.grad((wanted * toward).sum(), parameters)
    # Both as a convolution with the dense weight, and stage by stage.
    staged = layer.mix(values)[-1][:, : pattern.outputs] + layer.bias[:, None, None]
    for found in (layer(values), staged):
        torch.testing.assert_close(found, wanted)
        for one, other in zip(torch.autograd.grad((found * toward).sum(), parameters), gradients, strict=True):
            torch.testing.assert_close(one, other)


@settings(max_examples=40)
@given(patterns(most=64), st.integers(0, 1 << 16), st.booleans(), st.sampled_from(["", "gain", "extreme"]))
def test_fixed_point_is_golden_bit_for_bit(pattern: Pattern, seed: int, relu: bool, kind: str):
    rng = np.random.default_rng(seed)
    layer = layer_of(pattern, seed, relu=relu)
    if kind == "gain":
        layer.gain.uniform_(0.1, 3)
    shift = 7 if kind == "extreme" else int(rng.integers(0, 8))
    scale = float(np.float32(rng.uniform(0.01, 0.1)))
    after = int(rng.integers(-shift, 8 - shift))
    layer.fixed_point = FixedPoint(
        scale, int(rng.integers(-128, 128)), shift, scale * 2.0**after, int(rng.integers(-128, 100))
    )
    codes = (
        rng.choice([-128, 127], (2, pattern.inputs, 3, 3))
        if kind == "extreme"
        else rng.integers(-128, 128, (2, pattern.inputs, 3, 3))
    )
    stages, epilogue = layer.stages(layer.fixed_point), layer.epilogue(layer.fixed_point)
    if kind != "gain":
        assert epilogue.shift == shift + after
    wanted = fast_pointwise(
        np.moveaxis(codes.astype(np.int8), 1, -1), layer.fixed_point.input_zero_point, stages, epilogue
    )
    found = layer.run_codes(torch.from_numpy(codes).float())
    np.testing.assert_array_equal(found.detach().numpy(), np.moveaxis(wanted, -1, 1))
    # The same from real numbers to real numbers.
    real = torch.from_numpy((codes - layer.fixed_point.input_zero_point).astype(np.float32)) * np.float32(scale)
    result = np.moveaxis(wanted.astype(np.float32), -1, 1) - layer.fixed_point.output_zero_point
    np.testing.assert_array_equal(layer(real).detach().numpy(), result * np.float32(layer.fixed_point.output_scale))


def test_gradients_go_straight_through_roundings():
    torch.manual_seed(0)
    layer = FastPointwiseConv2d(16, 12, skips=[(0, 3)])
    values = torch.rand(4, 16, 3, 3) * 2 - 1
    toward = torch.randn(4, 12, 3, 3)
    parameters = list(layer.parameters())
    exact = torch.autograd.grad((layer(values) * toward).sum(), parameters)
    layer.fixed_point = FixedPoint(2 / 255, 0, 4, 16 / 255, 0)
    rounded = torch.autograd.grad((layer(values) * toward).sum(), parameters)
    for one, other in zip(exact, rounded, strict=True):
        assert (one - other).norm() < 0.05 * one.norm()


def test_weights_beyond_the_range_get_no_gradient_and_saturate():
    layer = FastPointwiseConv2d(4, 4, densities=["full"] * 2, growth_shifts=[0, 0])
    with torch.no_grad():
        layer.own["0"].copy_(torch.tensor([3.0, -3.0, 0.5, 1.0]))
    layer.fixed_point = FixedPoint(0.01, 0, 2, 0.04, 0)
    assert layer.stages(layer.fixed_point).own[0].tolist() == [127, -128, 32, 64]
    layer(torch.rand(1, 4, 2, 2)).sum().backward()
    assert (layer.own["0"].grad == 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("channels", [(64, 64), (128, 128), (48, 100), (256, 16)])
def test_a_layer_begins_with_about_twice_the_variance_and_independent_outputs(
    direction: Direction, channels: tuple[int, int]
):
    torch.manual_seed(1)
    layer = FastPointwiseConv2d(*channels, direction=direction)
    matrix = layer.dense_weight()[:, :, 0, 0].detach()
    # Weights stay below two, so that not quite all of it is reached everywhere.
    assert 1.3 < float(matrix.square().sum()) / channels[1] < 2.5
    singular = torch.linalg.svdvals(matrix)
    assert float(singular[0] / singular[-1]) < 10


def test_fixed_point_needs_the_type_that_is_exact():
    layer = FastPointwiseConv2d(4, 4)
    layer.fixed_point = FixedPoint(0.01, 0, 4, 0.04, 0)
    with pytest.raises(TypeError, match=r"^values must be float32 in fixed point, not bfloat16$"):
        layer(torch.rand(1, 4, 2, 2).bfloat16())


def test_it_learns():
    """What another layer of its kind computes."""
    torch.manual_seed(0)
    teacher, layer = FastPointwiseConv2d(16, 16), FastPointwiseConv2d(16, 16)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.02)
    values = torch.randn(64, 16, 2, 2)
    wanted = teacher(values).detach()
    losses = []
    for _ in range(200):
        loss = (layer(values) - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]


def test_a_unit_stage_has_no_parameters():
    layer = FastPointwiseConv2d(8, 8, bias=False, densities=["unit", "cross", "full"])
    assert {name: tuple(weights.shape) for name, weights in layer.named_parameters()} == {
        "cross.1": (8,),
        "own.2": (8,),
        "cross.2": (8,),
    }
    assert layer.pattern.densities == (Density.UNIT, Density.CROSS, Density.FULL)
    assert "densities=[unit, cross, full]" in repr(layer)


def test_a_state_keeps_weights_and_fixed_point():
    torch.manual_seed(0)
    layer, other = FastPointwiseConv2d(8, 8), FastPointwiseConv2d(8, 8)
    values = torch.rand(1, 8, 2, 2)
    layer.fixed_point = FixedPoint(1 / 255, -128, 5, 4 / 255, 0)
    other.load_state_dict(layer.state_dict())
    assert other.fixed_point == layer.fixed_point
    torch.testing.assert_close(other(values), layer(values), rtol=0, atol=0)
    other.load_state_dict(FastPointwiseConv2d(8, 8).state_dict())
    assert other.fixed_point is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"densities": ["full"]}, "densities must be 3, one for each stage of 8 values, not 1"),
        ({"direction": "sideways"}, "direction must be 'bottom-up' or 'top-down', not 'sideways'"),
        ({"skips": [(2, 3)]}, "skips must be (i, j) with 0 <= i <= j <= 2, not (2, 3)"),
        ({"growth_shifts": [0, 1]}, "growth_shifts must be 3, one for each stage, not 2"),
        ({"growth_shifts": [0, 1, 2]}, "growth_shifts[2] must be 0 or 1, not 2"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        FastPointwiseConv2d(8, 8, **settings)
