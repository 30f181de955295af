"""Models and their files: parsed once, read with what they refer to; what their inputs look like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from lutterfly.examples import digits
from lutterfly.golden.program.program import MAGIC
from lutterfly.host.model.arrays import TensorInfo
from lutterfly.host.model.model import Model, read_model_file

DATA = digits.model_path("qop").read_bytes()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What is parsed from now on."""
    found, parse = [], onnx.load_from_string
    monkeypatch.setattr(onnx, "load_from_string", lambda data: found.append(data) or parse(data))
    return found


def test_bytes_are_parsed_once_and_on_demand(parsed: list[bytes]) -> None:
    model = Model(DATA)
    assert (bool(model), parsed) == (True, [])
    assert model.proto is model.proto
    assert model.proto.graph.node
    assert parsed == [DATA]


def test_what_was_written_in_memory_is_never_parsed(parsed: list[bytes]) -> None:
    proto = onnx.load(digits.model_path("qop"))
    del parsed[:]
    model = Model.written(proto)
    assert model.proto is proto
    assert model == Model(proto.SerializeToString())
    assert parsed == []


def test_a_copy_may_be_changed() -> None:
    model = Model(DATA)
    copied = model.copy()
    assert copied == model.proto
    del copied.graph.node[:]
    assert model.proto == onnx.load_from_string(DATA)


def test_models_with_equal_bytes_are_equal() -> None:
    assert Model(DATA) == Model(bytes(bytearray(DATA)))
    assert hash(Model(DATA)) == hash(Model(bytes(bytearray(DATA))))
    assert Model(DATA) != Model()
    assert not Model()


def test_a_user_hands_in_bytes_or_a_model() -> None:
    model = Model(DATA)
    assert Model.of(model) is model
    assert Model.of(DATA) == model


def test_what_is_no_model_is_refused_by_the_parser() -> None:
    with pytest.raises(DecodeError):
        Model(b"no model").proto  # noqa: B018


def test_models_wait_for_no_import() -> None:
    code = "import sys; from lutterfly.host.model.model import Model; Model(b'x'); print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ONNX files as a user names them: with what they refer to, and what is none.


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


# What a model's inputs look like, as ONNX Runtime describes them.


def test_dimensions_that_are_not_fixed_count_as_one() -> None:
    assert TensorInfo("x", ["batch", 3, "height", None], "tensor(float)").sample_shape == (3, 1, 1)
    assert TensorInfo("x", [2, 5, 4], "tensor(float)").sample_shape == (5, 4)
