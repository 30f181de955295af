"""What an export gives up to be compared: good models pass, and a file that computes something else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

from cocotb_tests.support.networks.torch_networks import MobileNetV2, settle  # noqa: E402
from lutterfly.train import BinaryConv2d, BinaryLinear, FastPointwiseConv2d, calibrate, export_onnx, replace_pointwise  # noqa: E402
from lutterfly.train.exporting import comparison  # noqa: E402
from lutterfly.train.exporting import export as export_module  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

Fault = Callable[[onnx.ModelProto], None]


class Mixed(nn.Module):
    """A fast pointwise convolution and a binary one, each with batch normalisation after it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.fast = FastPointwiseConv2d(16, 24)
        self.norm = nn.BatchNorm2d(24)
        self.binary = BinaryConv2d(24, 16, 3, padding=1, signs=False)
        self.inner = nn.BatchNorm2d(16)
        self.head = BinaryLinear(16, 10, signs=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fast = self.norm(self.fast(torch.relu(self.stem(images))))
        pooled = self.inner(self.binary(fast)).mean((2, 3))
        return self.head(pooled)


@pytest.fixture(scope="module")
def mixed() -> tuple[nn.Module, np.ndarray]:
    torch.manual_seed(0)
    images = torch.rand(48, 3, 8, 8)
    model = settle(Mixed(), images)
    with torch.no_grad():
        model.fast.bias.normal_(std=0.3)
    calibrate(model, [images])
    return model, images.numpy()


def initializer(model: onnx.ModelProto, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if tensor.name == name)).copy()


def set_initializer(model: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(array.astype(numpy_helper.to_array(tensor).dtype), name))


def of_depthwise(model: onnx.ModelProto) -> onnx.NodeProto:
    """The normalisation after the fast layer."""
    groups = [
        node for node in model.graph.node if node.op_type == "Conv" and any(one.i == 24 for one in node.attribute)
    ]
    (node,) = groups
    return node


def skip_normalisation(model: onnx.ModelProto) -> None:
    node = of_depthwise(model)
    for other in model.graph.node:
        other.input[:] = [node.input[0] if name == node.output[0] else name for name in other.input]


def turn_channels(model: onnx.ModelProto, number: int = 0) -> None:
    """Of a convolution."""
    node = [node for node in model.graph.node if node.op_type == "Conv"][number]
    source = next(other.input[0] for other in model.graph.node if other.output[0] == node.input[1])
    set_initializer(model, source, np.roll(initializer(model, source), 1, axis=0))


def shift_codes(model: onnx.ModelProto, call: str) -> None:
    """Another zero point in front of a layer."""
    codes = next(node.input[0] for node in model.graph.node if node.name == call)
    node = next(node for node in model.graph.node if node.output[0] == codes)
    (array,) = (numpy_helper.to_array(one) for one in model.graph.initializer if one.name == node.input[2])
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array - 40, np.int8), "wrong_zero_point"))
    node.input[2] = "wrong_zero_point"


def shift_results(model: onnx.ModelProto, call: str) -> None:
    """Another zero point after a layer."""
    codes = next(node.output[0] for node in model.graph.node if node.name == call)
    node = next(node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] == codes)
    array = initializer(model, node.input[2])
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array + 20, np.int8), "wrong_zero_point"))
    node.input[2] = "wrong_zero_point"


def change_function(model: onnx.ModelProto, family: str, constant: str, change: Callable) -> None:
    function = next(one for one in model.functions if one.name.startswith(family))
    node = next(one for one in function.node if one.op_type == "Constant" and one.output[0] == constant)
    array = numpy_helper.to_array(node.attribute[0].t)
    node.attribute[0].t.CopyFrom(numpy_helper.from_array(change(array.copy()).astype(array.dtype)))


def swap_two(array: np.ndarray) -> np.ndarray:
    """The first two that differ."""
    other = int(np.flatnonzero(array.reshape(len(array), -1)[:, 0] != array.reshape(len(array), -1)[0, 0])[0])
    array[[0, other]] = array[[other, 0]]
    return array


FAULTS: dict[str, tuple[Fault, str]] = {
    "batch normalisation lost": (skip_normalisation, "what enters binary must be within"),
    "channels in another order": (turn_channels, "what enters fast must be within"),
    "zero point in front of a fast layer": (lambda model: shift_codes(model, "fast"), "what enters fast must be"),
    "zero point after a fast layer": (lambda model: shift_results(model, "fast"), "what enters binary must be"),
    "zero point after a binary layer": (
        lambda model: shift_results(model, "binary"),
        "what inner gives (getitem_3) must be within",
    ),
    "zero point after the last layer": (lambda model: shift_results(model, "head"), "what the model gives (output)"),
    "bias of a fast layer": (
        lambda model: change_function(model, "FastPointwiseConv", "bias", swap_two),
        "fast: codes of the file must be those of the layer for the same codes that enter, and",
    ),
    "bias of a binary layer": (
        lambda model: change_function(model, "BinaryConv_2", "bias", swap_two),
        "binary: codes of the file must be those of the layer",
    ),
}


def spoil(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Put a fault into every exported file."""
    drop_unused = export_module._drop_unused

    def drop_and_spoil(quantised: onnx.ModelProto) -> None:
        fault(quantised)
        drop_unused(quantised)

    monkeypatch.setattr(export_module, "_drop_unused", drop_and_spoil)


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_computes_something_else_is_refused_with_the_place(
    name: str, mixed: tuple[nn.Module, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    model, images = mixed
    fault, message = FAULTS[name]
    spoil(monkeypatch, fault)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        export_onnx(model, images)


class OtherInExport(nn.Module):
    """Multiplies its input when it is exported, and only then."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.model(self.factor * values if torch.compiler.is_exporting() else values)


def test_what_rounding_would_hide_is_refused_before_anything_is_rounded(mixed: tuple[nn.Module, np.ndarray]):
    model, images = mixed
    pattern = (
        r"^what enters model\.fast must be that of PyTorch in the exporter's file, before anything is quantised, and "
        r"is off by [1-3]\.\d% \(RMS\); write it with modules and operators whose meaning ONNX has, and give samples "
        r"that are typical$"
    )
    with pytest.raises(ValueError, match=pattern):
        export_onnx(OtherInExport(model, 1.03), images)


class Ordinary(nn.Module):
    """Without a layer that becomes a function."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.last = nn.Linear(8, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.max_pool2d(self.second(self.first(images)), 8).flatten(1))


@pytest.fixture(scope="module")
def ordinary() -> tuple[nn.Module, np.ndarray]:
    torch.manual_seed(0)
    images = torch.rand(48, 1, 8, 8)
    return settle(Ordinary(), images), images.numpy()


def shift_zero_point(model: onnx.ModelProto, operator: str) -> None:
    """Another zero point after the first of some operators, and the old one for whoever reads the codes."""
    tensor = next(node.output[0] for node in model.graph.node if node.op_type == operator)
    node = next(node for node in model.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == tensor)
    wrong = np.asarray(initializer(model, node.input[2]) + 20, np.int8)
    model.graph.initializer.append(numpy_helper.from_array(wrong, "wrong_zero_point"))
    node.input[2] = "wrong_zero_point"


@pytest.mark.parametrize(
    ("fault", "place"),
    [
        (lambda model: shift_zero_point(model, "Conv"), "first.1 gives"),
        (lambda model: turn_channels(model, 0), "first.1 gives"),
        (lambda model: turn_channels(model, 1), "second.2 gives"),
        (lambda model: shift_zero_point(model, "MaxPool"), "the model's own operators give"),
    ],
)
def test_ordinary_layers_are_compared_one_by_one(
    fault: Fault, place: str, ordinary: tuple[nn.Module, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    """After the next layer the fault may be within what rounding explains."""
    export_onnx(*ordinary)
    spoil(monkeypatch, fault)
    with pytest.raises(ValueError, match=rf"^what {re.escape(place)} \(\w+\) must be within"):
        export_onnx(*ordinary)


def test_good_models_pass(mixed: tuple[nn.Module, np.ndarray]):
    export_onnx(*mixed)
    torch.manual_seed(1)
    images = torch.rand(12, 3, 32, 32)
    model = MobileNetV2()
    assert len(replace_pointwise(model)) == 6
    settle(model, images)
    calibrate(model, [images])
    export_onnx(model, images.numpy())


@pytest.mark.parametrize(("values", "most"), [(1 << 26, 48), (5_000, 4), (10, 1)])
def test_large_networks_are_compared_on_fewer_samples(
    values: int, most: int, ordinary: tuple[nn.Module, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    held: list[int] = []

    class Counted(comparison.QuantisedFile):
        def __init__(self, data: onnx.ModelProto, samples: np.ndarray) -> None:
            super().__init__(data, samples)
            held.append(len(samples))

    monkeypatch.setattr(comparison, "_MOST_VALUES", values)
    monkeypatch.setattr(comparison, "QuantisedFile", Counted)
    export_onnx(*ordinary)
    assert held == [1, most]
