"""Models: parsed once, and only when somebody asks."""

from __future__ import annotations

import subprocess
import sys

import onnx
import pytest
from google.protobuf.message import DecodeError

from lutterfly.examples import digits
from lutterfly.host.model.model import Model

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
