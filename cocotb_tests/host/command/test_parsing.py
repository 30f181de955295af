"""Commands parse each ONNX model once, and hand it on unchanged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from cocotb_tests.support.oracles.exactness import needs_reference
from lutterfly.examples import digits
from lutterfly.golden.program.program import Program
from lutterfly.host.command import main

HOST = Path(main.__file__).parents[1]
#: Networks with a head and a tail on the host, in int8 and in uint8.
FORMS = ("qdq", "uint8")
#: What each command parses of the file of a model, and of a program file.
OF_MODEL = ("model",)
OF_PROGRAM = ("model", "head", "tail")


class Parsed:
    """What is parsed from now on.

    Attributes
    ----------
    contents : Counter
        How often which bytes are parsed.
    executed : int
        How many graphs are read that ONNX Runtime has written.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.contents: Counter[bytes] = Counter()
        self.executed = 0
        self._parse, self._load = onnx.load_from_string, onnx.load
        self._models: list[tuple[bytes, onnx.ModelProto]] = []
        monkeypatch.setattr(onnx, "load_from_string", self._count)
        monkeypatch.setattr(onnx, "load", self._count_executed)

    def _count(self, data: bytes) -> onnx.ModelProto:
        self.contents[data] += 1
        self._models.append((data, self._parse(data)))
        return self._models[-1][1]

    def _count_executed(self, path: Path) -> onnx.ModelProto:
        self.executed += 1
        return self._load(path)

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody has changed what was parsed."""
        return all(model == self._parse(data) for data, model in self._models)


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[Path, Path, Program]]:
    """Files of a network: the model, its program, and what is in the latter."""

    def make(form: str) -> tuple[Path, Path, Program]:
        model, path = tmp_path / "net.onnx", tmp_path / "net.lfp"
        network = onnx.load(digits.model_path(form))
        # The compiler names its nodes, but not here.
        for node in network.graph.node:
            node.name = ""
        onnx.save(network, model)
        assert main.main(["compile", str(model), "--output", str(path), "--config", "tiny"]) == 0
        program = Program.from_bytes(path.read_bytes())
        assert program.head
        assert program.tail
        capsys.readouterr()
        return model, path, program

    return make


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("words", "of_model", "of_program"),
    [
        (["check"], OF_MODEL, ("head", "tail")),
        (["compile", "--output", "made.lfp"], OF_MODEL, ("head", "tail")),
        (["run", "--input", "one.npy"], OF_MODEL, ("head", "tail")),
        # Of several samples it is found out whether they are independent.
        (["run", "--input", "two.npy"], OF_MODEL, OF_PROGRAM),
        (["run", "--input", "one.npy", "--report", "page.html"], OF_MODEL, ("head", "tail")),
        (["verify", "--samples", "2"], OF_MODEL, OF_PROGRAM),
    ],
)
def test_each_model_is_parsed_once(
    files: Callable[[str], tuple[Path, Path, Program]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    words: list[str],
    of_model: tuple[str, ...],
    of_program: tuple[str, ...],
) -> None:
    model, path, program = files(form)
    monkeypatch.chdir(tmp_path)
    for name, samples in (("one", 1), ("two", 2)):
        np.save(f"{name}.npy", digits.images()[:samples])
    command, *options = words
    for file, names in ((model, of_model), (path, of_program)):
        parsed = Parsed(monkeypatch)
        assert main.main([command, str(file), *options, "--config", "tiny"]) == 0
        assert parsed.contents == Counter(getattr(program, name) for name in names)
        assert parsed.is_unchanged
        monkeypatch.undo()
        monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(2)
@needs_reference
@pytest.mark.parametrize(
    ("command", "executed"),
    [(["check"], 1), (["compile", "--output", "made.lfp"], 1), (["verify", "--samples", "1"], 2)],
)
def test_the_executed_graph_is_asked_for_by_the_compiler_and_by_the_reference_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], executed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    parsed = Parsed(monkeypatch)
    assert main.main([command[0], str(digits.model_path("qdq")), *command[1:], "--config", "tiny"]) == 0
    assert parsed.executed == executed


def float_network() -> bytes:
    constants = {"w": np.random.default_rng(0).normal(size=(8, 4)), "b": np.ones(4)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")],
        "net",
        # A weight that is listed among the inputs is a constant to the quantiser, but not here.
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in (("x", ["N", 8]), ("b", [4]))
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@needs_reference
def test_the_float_model_is_parsed_once_and_the_quantised_one_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = float_network()
    Path("net.onnx").write_bytes(given)
    np.savez("inputs.npz", x=np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32))
    parsed = Parsed(monkeypatch)
    assert main.main(["quantize", "net.onnx", "--calibrate", "inputs.npz", "-o", "made.onnx", "--config", "tiny"]) == 0
    # ONNX Runtime's quantiser parses others of its own. What is compiled is what was written, before it was bytes.
    assert [parsed.contents[data] for data in (given, Path("made.onnx").read_bytes())] == [1, 0]
    assert parsed.is_unchanged


def test_nobody_else_parses() -> None:
    """What is counted above is all that there is."""

    def users(pattern: str) -> set[str]:
        return {
            path.relative_to(HOST).as_posix() for path in HOST.rglob("*.py") if re.search(pattern, path.read_text())
        }

    assert users(r"from_string|FromString") == {"model/model.py"}
    # What ONNX Runtime has written.
    assert users(r"\bonnx\.load(_model)?\(") == {"model/executed.py", "quantize/float_model.py"}
