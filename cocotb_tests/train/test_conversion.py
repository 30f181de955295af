"""Models: pointwise convolutions replaced, groups of parameters, normalisation folded, fixed point calibrated."""

from __future__ import annotations

import re

import pytest

from cocotb_tests.support.networks.butterflies import Network
from lutterfly.golden.config import Config
from lutterfly.golden.numerics.butterfly import Direction, Pattern
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import CompileError, compile_model

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from lutterfly.train import (  # noqa: E402
    FastPointwiseConv2d,
    calibrate,
    fold_batch_norm,
    parameter_groups,
    replace_pointwise,
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.mixing = nn.Conv2d(32, 48, 1, bias=False)
        self.norm = nn.BatchNorm2d(48)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.mixing(self.depthwise(values))))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 1),
        Block(),
        nn.Conv2d(48, 48, 1, stride=2),
        nn.Conv2d(48, 48, 1, groups=2),
        nn.Conv2d(48, 64, 1, padding=1),
        nn.Conv2d(64, 64, 1),
    )


def test_only_pointwise_convolutions_that_gain_are_replaced():
    model = network()
    values = torch.rand(2, 3, 8, 8)
    shape = model(values).shape
    assert replace_pointwise(model, direction="top-down", skips="ends") == ["1.mixing", "5"]
    assert model(values).shape == shape
    fast = model[1].mixing
    assert isinstance(fast, FastPointwiseConv2d)
    assert (fast.pattern.direction, fast.pattern.skips) == (Direction.TOP_DOWN, ((0, 5),))
    assert fast.bias is None
    assert model[5].bias is not None
    assert replace_pointwise(network(), exclude=["5"], least_channels=3) == ["0", "1.mixing"]
    with pytest.raises(ValueError, match=r"^exclude must be names of modules, and 'six' is none$"):
        replace_pointwise(network(), exclude=["six"])


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(32, 256, 1), nn.Conv2d(256, 257, 1)


#: Whose remedy is a configuration, not a preset.
SPECIAL = 'choose a --config with "FPC": {"width": 256'


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        ("ecp5-85k", {}, "wide: channels must be at most 256, not 257; no configuration has that: width must be"),
        ("ecp5-85k", {"exclude": ["wide"], "direction": "top-down"}, SPECIAL + ', "direction": "top-down"'),
        ("ecp5-85k", {"exclude": ["wide"], "skips": "ends"}, "narrow: skips must be among [], and (0, 7) is (0, 7)"),
        ("ecp5-85k", {"exclude": ["wide"], "densities": ["full"] * 8}, "narrow: densities[1] must be at most cross"),
        ("large", {}, "narrow: engines must include FPC for this layer, not MAC"),
        (PRESETS["tiny"], {}, "narrow: engines must include FPC for this layer, not MAC, MAXIMUM"),
        ("small", {}, f"config must be one of {', '.join(PRESETS)} or a JSON file, not small"),
    ],
)
def test_what_a_configuration_would_not_run_is_refused_before_training_and_nothing_is_changed(
    config: str | Config, settings: dict, message: str
):
    model = Wide()
    before = dict(model.named_modules())
    with pytest.raises(ValueError, match=re.escape(message)):
        replace_pointwise(model, config=config, **settings)
    assert dict(model.named_modules()) == before
    # Nobody asks, nothing is refused.
    if config != "small":
        assert replace_pointwise(model, **settings)


def test_the_compiler_refuses_in_the_same_words():
    model = Wide()
    with pytest.raises(ValueError, match=r"^narrow: ") as refusal:
        replace_pointwise(model, config="ecp5-85k", exclude=["wide"], skips="ends")
    pattern = Pattern.of(32, 256, skips=[(0, 7)])
    network = Network((32, 2, 2))
    data = network.data(network.fast_pointwise("x", pattern))
    with pytest.raises(CompileError) as other:
        compile_model(data, PRESETS["ecp5-85k"], "model")
    assert str(other.value).endswith(str(refusal.value).removeprefix("narrow"))


def test_what_the_configuration_runs_is_replaced():
    model = Wide()
    assert replace_pointwise(model, config="ecp5-85k", exclude=["wide"]) == ["narrow"]
    assert isinstance(model.narrow, FastPointwiseConv2d)


def test_fast_weights_do_not_decay():
    model = network()
    replace_pointwise(model)
    decaying, staying = parameter_groups(model, 0.01)
    assert (decaying["weight_decay"], staying["weight_decay"]) == (0.01, 0.0)
    fast = {id(parameter) for layer in (model[1].mixing, model[5]) for parameter in layer.parameters()}
    assert {id(parameter) for parameter in staying["params"]} == fast
    assert len(decaying["params"]) + len(staying["params"]) == len(list(model.parameters()))
    assert {id(parameter) for parameter in decaying["params"]}.isdisjoint(fast)


def test_normalisation_folds_into_gain_and_bias():
    model = network().eval()
    replace_pointwise(model)
    block, values = model[1], torch.rand(2, 32, 5, 5)
    block.norm.running_mean.normal_()
    block.norm.running_var.uniform_(0.2, 2)
    with torch.no_grad():
        block.norm.weight.uniform_(0.3, 2)
        block.norm.bias.normal_()
        wanted = block(values)
        fold_batch_norm(block.mixing, block.norm)
        block.norm = nn.Identity()
        torch.testing.assert_close(block(values), wanted)


@pytest.mark.parametrize(
    ("norm", "message"),
    [
        (nn.BatchNorm2d(7), "norm must be of 8 channels, not 7"),
        (
            nn.BatchNorm2d(8, track_running_stats=False),
            "norm must have running statistics; make it with track_running_stats=True",
        ),
    ],
)
def test_another_normalisation_is_refused(norm: nn.BatchNorm2d, message: str):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        fold_batch_norm(FastPointwiseConv2d(8, 8), norm)


def test_a_scale_that_is_no_gain_is_refused():
    norm = nn.BatchNorm2d(8)
    with torch.no_grad():
        norm.weight[3] = -1
    layer = FastPointwiseConv2d(8, 8)
    with pytest.raises(ValueError, match=r"^norm must scale channels by more than zero, not channel 3 by -1; keep"):
        fold_batch_norm(layer, norm)
    assert (layer.gain == 1).all()


def test_fixed_point_is_close_to_float_and_shifts():
    torch.manual_seed(0)
    model = nn.Sequential(
        FastPointwiseConv2d(24, 64, relu=True), FastPointwiseConv2d(64, 30, direction="top-down", skips=[(0, 5)])
    )
    values = torch.randn(8, 24, 4, 4)
    exact = model(values)
    assert calibrate(model, values.split(4)) == ["0", "1"]
    for layer in model:
        epilogue = layer.epilogue(layer.fixed_point)
        assert epilogue.shift is not None
        assert 3 <= layer.fixed_point.input_shift <= 7
    assert model[0].fixed_point.output_zero_point == -128
    error = (model(values) - exact).square().mean() / exact.square().mean()
    assert float(error.detach()) < 1e-3
    # Calibrated again it has met the same numbers.
    known = [layer.fixed_point for layer in model]
    calibrate(model, [values])
    assert [layer.fixed_point for layer in model] == known


def test_a_gain_needs_a_multiplication():
    torch.manual_seed(0)
    layer = FastPointwiseConv2d(16, 16)
    layer.gain.uniform_(0.5, 2)
    calibrate(nn.Sequential(layer), [torch.randn(2, 16, 4, 4)])
    assert layer.epilogue(layer.fixed_point).shift is None


def test_outputs_beyond_inputs_leave_fewer_bits_to_enter():
    torch.manual_seed(0)
    layer = FastPointwiseConv2d(16, 16)
    with torch.no_grad():
        layer.bias.copy_(torch.linspace(-60, 60, 16))
    calibrate(nn.Sequential(layer), [torch.rand(2, 16, 4, 4)])
    settings = layer.fixed_point
    assert layer.epilogue(settings).shift == 7
    assert 0 <= settings.input_shift < 3
    assert settings.output_scale == settings.input_scale * 2.0 ** (7 - settings.input_shift)


def test_outputs_far_beyond_inputs_need_a_multiplication_too():
    layer = FastPointwiseConv2d(16, 16)
    with torch.no_grad():
        layer.bias.fill_(1000.0)
    calibrate(nn.Sequential(layer), [torch.randn(2, 16, 4, 4)])
    assert layer.epilogue(layer.fixed_point).shift is None


def test_what_cannot_be_calibrated_is_refused():
    values = torch.randn(2, 16, 4, 4)
    with pytest.raises(ValueError, match=r"^model must have a FastPointwiseConv2d, and has none$"):
        calibrate(nn.Sequential(nn.Conv2d(16, 16, 1)), [values])
    with pytest.raises(ValueError, match=r"^batches must be at least one, and are none$"):
        calibrate(nn.Sequential(FastPointwiseConv2d(16, 16)), [])
    growing = FastPointwiseConv2d(256, 256, densities=["full"] * 8, growth_shifts=[0] * 8)
    with torch.no_grad():
        for weights in growing.parameters():
            weights.fill_(1.9)
    with pytest.raises(ValueError, match=r"^0: values between stages must be at most 32767 steps of the input's scale"):
        calibrate(nn.Sequential(growing), [torch.rand(2, 256, 4, 4)])
