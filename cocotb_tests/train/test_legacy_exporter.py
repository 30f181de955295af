"""Files of PyTorch's older exporter, quantised by ONNX Runtime and by Lutterfly: no byte of their outputs differs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.frontend import import_model
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize.static_quantisation import quantize

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
from torch import nn  # noqa: E402

# PyTorch's exporter warns of what it uses itself, and of its own age.
pytestmark = [
    needs_reference,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

CONFIG = PRESETS["tiny"]
Halve = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


class HalvedMaps(nn.Module):
    """Two branches, each with half of the channels."""

    def __init__(self, halve: Halve) -> None:
        super().__init__()
        self.halve = halve
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.left, self.right = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(8, 5, 1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        left, right = self.halve(torch.relu(self.stem(values)))
        return self.last(torch.cat([torch.relu(self.left(left)), self.right(right)], 1))


class HalvedVectors(nn.Module):
    """Linear with BatchNorm1d, which this exporter does not fold; then each half on its own."""

    def __init__(self, halve: Halve) -> None:
        super().__init__()
        self.halve = halve
        self.stem, self.norm = nn.Linear(12, 8), nn.BatchNorm1d(8)
        self.left, self.right = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        left, right = self.halve(torch.relu(self.norm(self.stem(values))))
        return torch.cat([self.left(left), self.right(right)], 1)


#: Networks, the shapes of their samples, and how many products and batch normalisations they have.
NETWORKS = {"maps": (HalvedMaps, (3, 6, 6), 4, 0), "vectors": (HalvedVectors, (12,), 3, 2)}


class Reader(CalibrationDataReader):
    def __init__(self, values: np.ndarray) -> None:
        self._samples = iter([{"input": value[None]} for value in values])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._samples, None)


#: How channels are halved, and the operator that the exporter makes of it: chunk's slices end where the shape says.
HALVES: dict[str, tuple[Halve, str]] = {
    "chunk": (lambda values: values.chunk(2, 1), "Slice"),
    "split": (lambda values: values.split(4, 1), "Split"),
}


def export(name: str, opset: int, halves: str) -> tuple[bytes, np.ndarray]:
    """The float file, and samples."""
    torch.manual_seed(0)
    (make, shape, _, normalisations), (halve, operator) = NETWORKS[name], HALVES[halves]
    model, values = make(halve), torch.randn(16, *shape)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, -1.5, 1.5)
            nn.init.normal_(module.bias)
    file = io.BytesIO()
    torch.onnx.export(
        model.eval(),
        (values[:1],),
        file,
        dynamo=False,
        opset_version=opset,
        input_names=["input"],
        dynamic_axes={"input": {0: "batch"}},
    )
    operators = [node.op_type for node in onnx.load_from_string(file.getvalue()).graph.node]
    assert {"Slice", "Split"} & set(operators) == {operator}
    assert operators.count("BatchNormalization") == normalisations
    return file.getvalue(), values.numpy()


def assert_same_bytes(quantised: bytes, name: str, values: np.ndarray) -> None:
    """The golden machine's outputs are those of ONNX Runtime, and every product is in it."""
    graph = import_model(quantised)
    assert sum(hasattr(layer, "weights") for layer in graph.layers) == NETWORKS[name][2]
    sessions = InferenceSession(quantised, CONFIG, GoldenTransport(CONFIG)), open_session(Model(quantised))
    found, expected = (session.run(None, {"input": values})[0] for session in sessions)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("halves", HALVES)
@pytest.mark.parametrize("opset", [11, 13, 17])
@pytest.mark.parametrize("name", NETWORKS)
def test_files_quantised_by_lutterfly(name: str, opset: int, halves: str):
    data, values = export(name, opset, halves)
    assert_same_bytes(quantize(data, {"input": values}), name, values[:3])


@pytest.mark.parametrize("halves", HALVES)
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_files_quantised_by_onnx_runtime(form: QuantFormat, kind: QuantType, halves: str, tmp_path: Path):
    data, values = export("maps", 13, halves)
    source, target = tmp_path / "float.onnx", tmp_path / "int8.onnx"
    source.write_bytes(data)
    quantize_static(
        source, target, Reader(values), quant_format=form, activation_type=kind, weight_type=QuantType.QInt8
    )
    assert_same_bytes(target.read_bytes(), "maps", values[:3])
