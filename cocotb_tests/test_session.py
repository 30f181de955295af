"""The session over the golden machine: the interface, and the bytes, of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from exactness import needs_reference
from golden_transport import GoldenTransport

from lutterfly.examples import digits
from lutterfly.golden.config import PRESETS
from lutterfly.host import InferenceSession, reference
from lutterfly.host.session import load_program

CONFIG = PRESETS["ecp5-85k"]


def open_session(form: str) -> InferenceSession:
    return InferenceSession(digits.model_path(form), CONFIG, GoldenTransport(CONFIG))


@pytest.mark.parametrize("form", digits.FORMS)
def test_describes_the_model_as_onnx_runtime_does(form: str) -> None:
    ours, theirs = open_session(form), onnxruntime.InferenceSession(digits.model_path(form))
    for mine, other in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(info.name, info.shape, info.type) for info in mine] == [
            (info.name, info.shape, info.type) for info in other
        ]


@needs_reference
@pytest.mark.parametrize("form", digits.FORMS)
def test_a_batch_has_the_bytes_of_onnx_runtime(form: str) -> None:
    session = open_session(form)
    images = digits.images()[:3]
    expected = reference.open_session(digits.model_path(form).read_bytes()).run(None, {"pixels": images})[0]
    np.testing.assert_array_equal(session.run(["logits"], {"pixels": images})[0], expected)
    assert len(session.counters) == 3


@pytest.mark.parametrize(
    ("names", "feeds", "kind", "message"),
    [
        (["no"], {"pixels": np.zeros((1, 1, 8, 8), np.float32)}, ValueError, "^output must be one of logits, not no$"),
        (None, {}, ValueError, "^input pixels must be given, and is missing$"),
        (None, {"x": np.zeros(1)}, ValueError, "^input must be one of pixels, not x$"),
        (
            None,
            {"pixels": np.zeros((1, 1, 8, 8))},
            TypeError,
            "^input pixels must be an array of float32, not float64$",
        ),
        (None, {"pixels": [0.0]}, TypeError, "^input pixels must be an array of float32, not list$"),
        (
            None,
            {"pixels": np.zeros((1, 8, 8), np.float32)},
            ValueError,
            r"^input pixels must have the shape \[batch, 1, 8, 8\], not \[1, 8, 8\]$",
        ),
        (None, {"pixels": np.zeros((0, 1, 8, 8), np.float32)}, ValueError, r"not \[0, 1, 8, 8\]$"),
    ],
)
def test_refuses(names: list[str] | None, feeds: dict[str, np.ndarray], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        open_session("qdq").run(names, feeds)


def test_runs_a_program_file(tmp_path: Path) -> None:
    path = tmp_path / "digits.program"
    path.write_bytes(load_program(digits.model_path("qop"), CONFIG).to_bytes())
    image = digits.images()[:1]
    from_file = InferenceSession(path, CONFIG, GoldenTransport(CONFIG)).run(None, {"pixels": image})
    np.testing.assert_array_equal(from_file, open_session("qop").run(None, {"pixels": image}))
    with pytest.raises(ValueError, match=r"^program must be for the configuration of this hardware"):
        InferenceSession(path, "tiny")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError,
        match=r"digits\.program: program must have .* bytes, not .*: the file is truncated or damaged; compile again$",
    ):
        InferenceSession(path, CONFIG)
