"""The sparse example: its recipes, an interrupted training, its table and its plot. The full study takes minutes."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lutterfly.examples.scatter import COLOURS, scatter

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-train")

from lutterfly.examples import train_loop, train_sparse_study  # noqa: E402
from lutterfly.examples import train_sparse_digits as example  # noqa: E402
from lutterfly.examples.train_sparse_digits import Recipe  # noqa: E402

# PyTorch's exporter warns of what it uses itself.
exporting = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


class UnpluggedError(Exception):
    """Somebody pulls the plug."""


def state_bytes(model: torch.nn.Module) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in model.state_dict().values()]


@pytest.mark.parametrize("is_learned", [False, True])
def test_an_interrupted_training_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_learned: bool
):
    random = np.random.default_rng(0)
    pixels, labels = random.random((256, 1, 8, 8), np.float32), random.integers(0, 10, 256).astype(np.uint8)
    recipe, path = Recipe(0.9, start=0.3, is_learned=is_learned, width=32, epochs=4), tmp_path / "run.pt"
    whole = example.train(recipe, pixels, labels, seed=3)
    calls = []

    def shifted(values: torch.Tensor) -> torch.Tensor:
        # Four batches an epoch: this is in the middle of the third.
        calls.append(values)
        if len(calls) == 11:
            raise UnpluggedError
        return real(values)

    real = train_loop.shifted
    monkeypatch.setattr(train_loop, "shifted", shifted)
    with pytest.raises(UnpluggedError):
        example.train(recipe, pixels, labels, seed=3, checkpoint=path)
    resumed = example.train(recipe, pixels, labels, seed=3, checkpoint=path)
    assert len(calls) == 11 + 8
    assert state_bytes(resumed) == state_bytes(whole)
    assert state_bytes(example.train(recipe, pixels, labels, seed=4)) != state_bytes(whole)


def test_recipes_say_their_schedule():
    assert Recipe(0.5).densities == {0: 0.5}
    assert Recipe(0.5, start=0.01, epochs=12).densities == {0: 0.01, 3: 0.05, 6: 0.5}
    assert Recipe(0.04, start=0.01, epochs=12).densities == {0: 0.01, 3: 0.04, 6: 0.04}
    assert Recipe(0.5).rewiring is None
    assert Recipe(0.5, is_learned=True, epochs=12).rewiring.until == 8


@exporting
def test_the_command_writes_a_sparse_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    path = tmp_path / "sparse.onnx"
    options = ["--density", "0.5", "--width", "32", "--epochs", "1", "--images", "300", "--output", str(path)]
    monkeypatch.setattr(sys, "argv", ["train_sparse_digits.py", "train", *options])
    example.main()
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: ")
    assert "50.0 % of the blocks" in said
    weights = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    sparse = [weight for weight in weights if weight.ndim == 4 and weight.shape[1] > 1]
    assert [weight.shape for weight in sparse] == [(64, 32, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3)]
    for weight in sparse:
        blocks = weight.reshape(weight.shape[0] // 8, 8, weight.shape[1] // 16, 16, 9).any(axis=(1, 3, 4))
        assert blocks.mean() == 0.5


def test_a_study_compares_at_equal_cycles_and_writes_table_and_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With training and compilation made up."""

    def measure(name: str, recipe: Recipe, data: dict) -> train_sparse_study.MeasuredRecipe:
        assert data["pixels"].shape == (50, 1, 8, 8)
        cycles = 10 * recipe.width * recipe.density
        return train_sparse_study.MeasuredRecipe(name, recipe, recipe.density, cycles, [0.9, 0.92], [0.8, 0.82])

    monkeypatch.setattr(train_sparse_study, "measure", measure)
    monkeypatch.setattr(train_sparse_study, "dense_cycles", lambda width: 10 * width)
    found = train_sparse_study.study(tmp_path, epochs=7, images=50)
    assert {one.recipe.epochs for one in found} == {7}
    assert [one.recipe.width for one in found if one.name == "dense, narrower"] == [16, 24, 8, 16, 32]
    lines = (tmp_path / "sparse_digits.md").read_text().splitlines()
    assert len(lines) == 2 + len(found) == 17
    assert lines[5] == "| drawn | 0.125 | 12.5 % | 80 | 91.00 ± 1.41 % | 81.00 ± 1.41 % |"
    assert lines[7] == "| dense, narrower | width 8 | 100.0 % | 80 | 91.00 ± 1.41 % | 81.00 ± 1.41 % |"
    svg = ElementTree.fromstring((tmp_path / "sparse_digits.svg").read_text())
    texts = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"drawn", "learned", "dense, narrower", "incremental", "cycles (predicted)"} <= texts


def test_points_are_drawn_where_they_belong():
    points = {
        "one": [(100.0, 50.0, 1.0), (1000.0, 52.0, 0.5), (10000.0, 54.0, 0.0)],
        "other & more": [(100.0, 50.0, 0.0)],
    }
    svg = ElementTree.fromstring(scatter(points, x_title="x", y_title="y"))
    circles = [element.attrib for element in svg.iter("{http://www.w3.org/2000/svg}circle")]
    # The fourth is the legend's.
    first, second, third, beside = ((float(circles[at]["cx"]), float(circles[at]["cy"])) for at in (0, 1, 2, 4))
    assert second[0] - first[0] == pytest.approx(third[0] - second[0], abs=0.2)
    assert first[1] - second[1] == pytest.approx(second[1] - third[1], abs=0.2)
    assert first[0] < second[0]
    assert first[1] > second[1]
    assert beside == (first[0] + 5, first[1])
    texts = [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"100", "1,000", "10,000", "50", "54", "other & more"} <= set(texts)
    with pytest.raises(ValueError, match=r"^series must be at most 6, not 7$"):
        scatter({str(i): points["one"] for i in range(len(COLOURS) + 1)}, x_title="x", y_title="y")
