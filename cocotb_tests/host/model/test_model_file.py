"""ONNX files as a user names them: with what they refer to, and what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lutterfly.examples import digits
from lutterfly.golden.program.program import MAGIC
from lutterfly.host.model.model import read_model_file


def test_a_file_that_refers_to_no_other_keeps_its_bytes() -> None:
    path = digits.model_path("qop")
    assert read_model_file(path).data == path.read_bytes()


def test_weights_in_a_file_beside_it_are_inside(tmp_path: Path) -> None:
    whole = onnx.load(digits.model_path("qop"))
    path = tmp_path / "net.onnx"
    onnx.save(whole, path, save_as_external_data=True, size_threshold=0, location="net.onnx.data")
    read = read_model_file(path)
    pairs = zip(read.proto.graph.initializer, onnx.load(digits.model_path("qop")).graph.initializer, strict=True)
    for found, wanted in pairs:
        assert found.name == wanted.name
        np.testing.assert_array_equal(numpy_helper.to_array(found), numpy_helper.to_array(wanted))
    assert onnx.load_from_string(read.data) == read.proto


@pytest.mark.parametrize("contents", [b"", MAGIC + bytes(100)])
def test_what_is_no_model_is_for_its_reader_to_refuse(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(contents)
    assert read_model_file(path).data == contents
