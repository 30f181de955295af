"""The session over the golden machine: the interface, and the bytes, of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden.engines import find_memory
from lutterfly.golden.isa import COMMAND_BYTES, FORMATS, Opcode
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Queues
from lutterfly.host import InferenceSession
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.session.loading import load_program
from lutterfly.host.simulation.simulator import EventKind, VerilatorTransport

CONFIG = PRESETS["ecp5-85k"]


def open_session(form: str) -> InferenceSession:
    return InferenceSession(digits.model_path(form), CONFIG, GoldenTransport(CONFIG))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", digits.FORMS)
def test_describes_the_model_as_onnx_runtime_does(form: str) -> None:
    ours, theirs = open_session(form), onnxruntime.InferenceSession(digits.model_path(form))
    for mine, other in ((ours.get_inputs(), theirs.get_inputs()), (ours.get_outputs(), theirs.get_outputs())):
        assert [(info.name, info.shape, info.type) for info in mine] == [
            (info.name, info.shape, info.type) for info in other
        ]


@pytest.mark.sampled(1)
@needs_reference
@pytest.mark.parametrize("form", digits.FORMS)
def test_a_batch_has_the_bytes_of_onnx_runtime(form: str) -> None:
    session = open_session(form)
    images = digits.images()[:3]
    expected = executed.open_session(Model(digits.model_path(form).read_bytes())).run(None, {"pixels": images})[0]
    np.testing.assert_array_equal(session.run(["logits"], {"pixels": images})[0], expected)
    assert len(session.counters) == 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", [None, [], (), ["logits"], ("logits",), ["logits", "logits"]], ids=str)
def test_outputs_are_named_as_for_onnx_runtime(names: list[str] | None) -> None:
    feeds = {"pixels": digits.images()[:1]}
    expected = onnxruntime.InferenceSession(digits.model_path("qop")).run(names, feeds)
    found = open_session("qop").run(names, feeds)
    assert [array.shape for array in found] == [array.shape for array in expected]


def loads(queues: Queues) -> list[tuple[LocalMemory, int]]:
    """Memory and bytes of every LOAD."""
    commands = [
        queues.dma.commands[start : start + COMMAND_BYTES]
        for start in range(0, len(queues.dma.commands), COMMAND_BYTES)
    ]
    fields = [FORMATS[Opcode.LOAD].decode(word) for word in commands if word[0] & 15 == Opcode.LOAD]
    return [
        (
            find_memory(load["memory"]),
            load["rows"] * load["folds"] * load["row_pieces"] * load["piece_bytes"],
        )
        for load in fields
    ]


def test_a_batch_runs_the_prologue_once_and_no_body_loads_what_stays() -> None:
    transport = GoldenTransport(CONFIG)
    session = InferenceSession(digits.model_path("qop"), CONFIG, transport)
    session.run(None, {"pixels": digits.images()[:5]})
    session.run(None, {"pixels": digits.images()[:2]})
    prologue, body = session.program.cores[0].prologue, session.program.cores[0].body
    assert transport.starts == [prologue.dma.address] + 7 * [body.dma.address]
    assert {memory for memory, _ in loads(prologue)} >= {LocalMemory.WEIGHT, LocalMemory.PARAMETER, LocalMemory.TABLE}
    (port,) = session.program.inputs
    assert {memory for memory, _ in loads(body)} == {LocalMemory.FEATURE}
    assert sum(size for _, size in loads(body)) == port.size_bytes


@pytest.mark.regress
def test_a_batch_on_the_simulated_core_never_reads_the_weights_again() -> None:
    transport = VerilatorTransport(CONFIG)
    session = InferenceSession(digits.model_path("qop"), CONFIG, transport)
    program, images = session.program, digits.images()[:4]
    expected = open_session("qop").run(None, {"pixels": images})[0]
    session.driver()
    # Whoever reads constants from now on gets others.
    address = transport.arena_base + program.constants_address
    transport.write_memory(address, bytes(byte ^ 0x55 for byte in program.constants))
    np.testing.assert_array_equal(session.run(None, {"pixels": images})[0], expected)
    completed = [int(kind) for _, kind in transport.simulator.events()].count(EventKind.DMA_DONE)
    once, each = (len(queues.dma) for queues in (program.cores[0].prologue, program.cores[0].body))
    # The trace leaves out END.
    assert completed == once - 1 + len(images) * (each - 1)
    assert [counters["dma_done"] for counters in session.counters] == len(images) * [each]


@pytest.mark.sampled(2)
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
        ("logits", {}, TypeError, "^output_names must be a sequence of names, not str$"),
        (1, {}, TypeError, "^output_names must be a sequence of names, not int$"),
        ([], {}, ValueError, "^input pixels must be given, and is missing$"),
        (None, [np.zeros(1)], TypeError, "^input_feed must be a mapping of names to arrays, not list$"),
        (None, None, TypeError, "^input_feed must be a mapping of names to arrays, not NoneType$"),
    ],
)
def test_refuses(names: list[str] | None, feeds: dict[str, np.ndarray], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        open_session("qdq").run(names, feeds)


@pytest.mark.regress
def test_runs_a_program_file(tmp_path: Path) -> None:
    path = tmp_path / "digits.program"
    path.write_bytes(load_program(digits.model_path("qop"), CONFIG).to_bytes())
    image = digits.images()[:1]
    from_file = InferenceSession(path, CONFIG, GoldenTransport(CONFIG)).run(None, {"pixels": image})
    np.testing.assert_array_equal(from_file, open_session("qop").run(None, {"pixels": image}))
    with pytest.raises(ValueError, match=r": program must be for the configuration of this hardware"):
        InferenceSession(path, "tiny")


def test_what_a_program_file_holds_for_the_host_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_program(digits.model_path("qdq"), CONFIG)
    path = tmp_path / "digits.program"
    path.write_bytes(program.to_bytes())
    opened, opening = [], executed.open_host_part
    monkeypatch.setattr(executed, "open_host_part", lambda part: opened.append(part.data) or opening(part))
    InferenceSession(path, CONFIG, GoldenTransport(CONFIG)).run(None, {"pixels": digits.images()[:1]})
    assert opened == [program.head, program.tail]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        ValueError,
        match=r"digits\.program: program must have .* bytes, not .*: the file is truncated or damaged; compile again$",
    ):
        InferenceSession(path, CONFIG)
