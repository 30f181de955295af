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
from torch_networks import MobileNetV2, settle  # noqa: E402

from lutterfly.train import (  # noqa: E402
    BinaryConv2d,
    BinaryLinear,
    FastPointwiseConv2d,
    calibrate,
    export_onnx,
    replace_pointwise,
)
from lutterfly.train import export as export_module  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

Fault = Callable[[onnx.ModelProto], None]


class Mixed(nn.Module):
    """A fast pointwise convolution and a binary one, each with batch normalisation behind it."""

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
    """The normalisation behind the fast layer."""
    groups = [
        node for node in model.graph.node if node.op_type == "Conv" and any(one.i == 24 for one in node.attribute)
    ]
    (node,) = groups
    return node


def skip_normalisation(model: onnx.ModelProto) -> None:
    node = of_depthwise(model)
    for other in model.graph.node:
        other.input[:] = [node.input[0] if name == node.output[0] else name for name in other.input]


def turn_channels(model: onnx.ModelProto) -> None:
    node = next(node for node in model.graph.node if node.op_type == "Conv" and node is not of_depthwise(model))
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
    """Another zero point behind a layer."""
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
    "zero point behind a fast layer": (lambda model: shift_results(model, "fast"), "what enters binary must be"),
    "zero point behind a binary layer": (lambda model: shift_results(model, "binary"), "what enters head must be"),
    "zero point behind the last layer": (lambda model: shift_results(model, "head"), "what the model gives (output)"),
    "bias of a fast layer": (
        lambda model: change_function(model, "FastPointwiseConv", "bias", swap_two),
        "fast: codes of the file must be those of the layer for the same codes that enter, and",
    ),
    "bias of a binary layer": (
        lambda model: change_function(model, "BinaryConv_2", "bias", swap_two),
        "binary: codes of the file must be those of the layer",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_file_that_computes_something_else_is_refused_with_the_place(
    name: str, mixed: tuple[nn.Module, np.ndarray], monkeypatch: pytest.MonkeyPatch
):
    model, images = mixed
    fault, message = FAULTS[name]
    drop_unused = export_module._drop_unused

    def spoil(quantised: onnx.ModelProto) -> None:
        fault(quantised)
        drop_unused(quantised)

    monkeypatch.setattr(export_module, "_drop_unused", spoil)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        export_onnx(model, images)


def test_the_message_has_difference_limit_and_remedy(mixed: tuple[nn.Module, np.ndarray]):
    model, images = mixed

    class Hooked(nn.Module):
        """Computes something else when it is exported."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return self.model(-values if torch.compiler.is_exporting() else values)

    pattern = (
        r"^what enters model\.fast must be within \d+\.\d% \(RMS\) of that of PyTorch, which rounding to int8 "
        r"explains, and is off by \d+\.\d%; write it with modules and operators whose meaning ONNX has, and give "
        r"samples that are typical$"
    )
    with pytest.raises(ValueError, match=pattern):
        export_onnx(Hooked(), images)


def test_good_models_pass(mixed: tuple[nn.Module, np.ndarray]):
    export_onnx(*mixed)
    torch.manual_seed(1)
    images = torch.rand(12, 3, 32, 32)
    model = MobileNetV2()
    assert len(replace_pointwise(model)) == 6
    settle(model, images)
    calibrate(model, [images])
    export_onnx(model, images.numpy())
