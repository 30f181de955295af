"""The examples that train networks of floats: what they train, and what they measure of it."""

from __future__ import annotations

import numpy as np
import pytest

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.examples.digits import as_input
from lutterfly.host.frontend import describe, import_model

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")
pytest.importorskip("sklearn", reason="needs scikit-learn: make test-train")

from lutterfly.examples import train_recurrent_digits, train_unet_digits  # noqa: E402
from lutterfly.examples.train_loop import load  # noqa: E402
from lutterfly.examples.train_measured import measure, tell  # noqa: E402

pytestmark = [
    needs_reference,
    # PyTorch's exporter warns of what it uses itself.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]

IMAGES = 320


@pytest.fixture(autouse=True)
def _settings() -> object:
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


def on_the_accelerator(data: bytes) -> bool:
    """Whether nothing but quantising the ends is left to the host."""
    rows = describe(import_model(data))
    return {row.kind for row in rows if row.where != "accelerator"} == {"QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("cell", train_recurrent_digits.CELLS)
def test_a_reader_of_rows_learns_and_stays_exact(cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    images, others, labels, right = load()
    network = train_recurrent_digits.trained(cell, as_input(images[:IMAGES]), labels[:IMAGES], epochs=8)
    found = measure(network, as_input(images[:32]), as_input(others[:40]))
    assert on_the_accelerator(found.int8_model)
    assert found.differing == 0
    for logits in (found.of_float, found.of_int8):
        assert np.mean(logits.argmax(axis=1) == right[:40]) > 0.3
    assert np.mean(found.of_float.argmax(axis=1) == found.of_int8.argmax(axis=1)) > 0.8
    tell(found)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "simulated core: 0 of 40 outputs differ from ONNX Runtime's"
    assert [line.partition(":")[0] for line in shown[1:]] == ["ecp5-85k", "tiny"]
    assert all("; 0 of " in line for line in shown[1:])


@pytest.mark.parametrize("up", ["transposed", "nearest"])
def test_a_unet_takes_noise_off_and_stays_exact(up: str) -> None:
    images, others, _, _ = load()
    network = train_unet_digits.trained(up, as_input(images[:IMAGES]), epochs=2)
    torch.manual_seed(0)
    clean = as_input(others[:8])
    calibrating, noisy = (
        train_unet_digits.noisy(torch.from_numpy(each)).numpy() for each in (as_input(images[:32]), clean)
    )
    found = measure(network, calibrating, noisy)
    assert on_the_accelerator(found.int8_model)
    assert found.differing == 0
    before, of_float, of_int8 = (np.mean(np.square(made - clean)) for made in (noisy, found.of_float, found.of_int8))
    assert of_float < 0.7 * before
    assert abs(of_int8 - of_float) < 0.1 * of_float
