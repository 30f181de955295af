"""Several samples in one inference: the bytes of single ones, with weights that are loaded for all of them at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import Generated, Limits, Maker
from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.golden.isa import Opcode
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.units import Queue
from lutterfly.host import InferenceSession, compiler
from lutterfly.host.command.main import main
from lutterfly.host.compiler import CompileError, compile_graph, plan_graph
from lutterfly.host.compiler.rewrite.rewrites import batched
from lutterfly.host.graph import Graph, Window
from lutterfly.host.model import executed
from lutterfly.host.model.model import Model
from lutterfly.host.session.compare import TOLERANCE, TOLERANCE_CYCLES
from lutterfly.host.session.loading import load, load_program

TINY, ECP5 = PRESETS["tiny"], PRESETS["ecp5-85k"]


def every_layer() -> Graph:
    """All that is possible without feature maps, with weights that exceed `tiny`'s memory."""
    maker = GraphMaker((1, 1, 300))
    first = maker.fully_connected("x", 60, table=True)
    second = maker.pointwise(maker.fully_connected(first, 60))
    both = maker.concat(maker.add(first, second), maker.slice(second, 7, 20))
    return maker.finish(maker.max_pool(maker.fully_connected(both, 50), Window((1, 1))), second)


def large() -> Graph:
    maker = GraphMaker((1, 1, 1024))
    return maker.finish(maker.fully_connected(maker.fully_connected("x", 512), 1000))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("samples", [1, 2, 7, 40])
@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_has_the_bytes_of_its_samples(samples: int, order: str) -> None:
    graph = batched(every_layer(), samples)
    assert graph.tensors["x"].shape == (samples, 1, 300)
    for config in (TINY, ECP5):
        assert differing_bytes(graph, compile_graph(graph, config), config, order=order) == 0


@pytest.mark.regress
def test_streamed_weights_are_loaded_once_for_a_batch() -> None:
    def loaded(samples: int) -> tuple[int, int]:
        """Bytes of weights that an inference loads, and its cycles."""
        plan = plan_graph(batched(large(), samples), ECP5)
        loads = [command.fields for command in plan.queue(Queue.DMA) if command.opcode is Opcode.LOAD]
        return sum(
            load["rows"] * load["folds"] * load["row_pieces"] * load["piece_bytes"]
            for load in loads
            if load["memory"] == LocalMemory.WEIGHT
        ), plan.predicted_cycles

    (one, cycles), (many, cycles_of_many) = loaded(1), loaded(16)
    assert 700_000 < many <= 1.1 * one
    assert cycles_of_many / 16 < cycles / 10


@pytest.mark.sampled(1)
@needs_reference
@pytest.mark.parametrize(("form", "float_ends"), [("qop", False), ("qdq", True)])
def test_a_session_runs_a_batch_on_the_core(form: str, *, float_ends: bool, tmp_path: Path) -> None:
    model = network(form, float_ends=float_ends)
    feeds = {"x": np.concatenate([model.feeds(seed)["x"] for seed in range(6)])}
    session = InferenceSession(model.model, TINY, batch=4)
    (found,) = session.run(None, feeds)
    expected = [
        executed.open_session(Model(model.model)).run(None, {"x": feeds["x"][index : index + 1]})[0]
        for index in range(6)
    ]
    np.testing.assert_array_equal(found, np.concatenate(expected))
    assert len(session.counters) == 2
    # The first inference also fetches the program.
    cycles, predicted = session.counters[1]["cycles"], session.program.predicted_cycles
    assert abs(cycles - predicted) <= max(TOLERANCE_CYCLES, TOLERANCE * cycles)
    (tmp_path / "net.onnx").write_bytes(model.model)
    assert load(tmp_path / "net.onnx", TINY, batch=4).program == session.program
    alone = InferenceSession(model.model, TINY)
    alone.run(None, {"x": feeds["x"][:2]})
    assert cycles < 3 * alone.counters[1]["cycles"]


@pytest.mark.regress
def test_refuses() -> None:
    maker = GraphMaker((1, 1, 8))
    on_a_border = maker.finish(maker.convolution("x", 4, Window((3, 3), pads=(1, 1, 1, 1))))
    maker = GraphMaker((2, 2, 8))
    on_a_map = maker.finish(maker.fully_connected("x", 4))
    for graph in (on_a_border, on_a_map):
        assert batched(graph, 1) is graph
        with pytest.raises(
            CompileError,
            match=r"^conv_t0: batch must be 1 for a network with feature maps, not 3; "
            "leave it out, and samples are run one by one$",
        ):
            batched(graph, 3)
    with pytest.raises(ValueError, match=r"^batch must be at least 1, not 0$"):
        batched(on_a_map, 0)
    program = compile_graph(large(), ECP5)
    for opened in (program, program.to_bytes()):
        with pytest.raises(
            ValueError,
            match=r"^model: batch must be 1, which the program is compiled for, not 2; "
            r"leave it out, or compile the model again$",
        ):
            load_program(opened, ECP5, batch=2)


def network(form: str = "qop", *, float_ends: bool = False) -> Generated:
    """Two fully connected layers, of which `tiny` streams weights."""
    maker = Maker(np.random.default_rng(5), form, unsigned=False, limits=Limits(channels=64))
    maker.start((1, 640))
    maker.fully_connected(64)
    maker.activation("Tanh")
    maker.fully_connected(33)
    return maker.finish(float_ends=float_ends)


def answer(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict:
    """What a command says; its exit code is ``code``, or the assertion shows what it says instead."""
    found = main([*map(str, words), "--config", "tiny", "--json"])
    values = json.loads(capsys.readouterr().out)
    assert found == code, values
    return values


@pytest.mark.regress
@needs_reference
def test_a_program_file_says_its_batch_and_is_run_with_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, model, program = network(), tmp_path / "net.onnx", tmp_path / "net.program"
    model.write_bytes(made.model)
    compiled = answer(capsys, "compile", model, "-o", program, "--batch", 3)
    assert compiled["batch"] == 3
    assert Program.from_bytes(program.read_bytes()).batch == 3
    inputs, page = tmp_path / "x.npy", tmp_path / "report.html"
    np.save(inputs, np.concatenate([made.feeds(seed)["x"] for seed in range(5)]))
    results, compilations = [], []
    plan_graph_once = compiler.plan_graph
    monkeypatch.setattr(
        compiler, "plan_graph", lambda *given, **named: compilations.append(1) or plan_graph_once(*given, **named)
    )
    for number, words in enumerate(([program], [program, "--batch", 3], [model, "--batch", 3, "--report", page])):
        output = tmp_path / f"{number}.npy"
        values = answer(capsys, "run", *words, "--input", inputs, "--output", output)
        assert (values["batch"], values["samples"]) == (3, 5)
        assert values["predicted_cycles"] == compiled["predicted_cycles"]
        results.append(np.load(output))
    assert len(compilations) == 1
    assert f"{compiled['predicted_cycles']:,} predicted" in page.read_text()
    expected = [
        executed.open_session(Model(made.model)).run(None, {"x": made.feeds(seed)["x"]})[0] for seed in range(5)
    ]
    for found in results:
        np.testing.assert_array_equal(found, np.concatenate(expected))
    assert main(["check", str(program), "--config", "tiny"]) == 0
    text = f"{compiled['predicted_cycles']:,} cycles predicted for an inference of 3 samples"
    assert text in capsys.readouterr().out
    for command in (
        ["run", program, "--input", inputs],
        ["compile", program, "-o", tmp_path / "other"],
        ["verify", program],
    ):
        assert answer(capsys, *command, "--batch", 2, code=2) == {
            "error": (
                f"{program}: batch must be 3, which the program is compiled for, not 2; leave it out, or compile the "
                "model again"
            )
        }
    assert not (tmp_path / "other").exists()


@pytest.mark.regress
@needs_reference
@pytest.mark.parametrize(("form", "float_ends"), [("qop", False), ("qdq", True)])
def test_verify_compares_the_samples_of_a_batch(
    form: str, *, float_ends: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model, program = tmp_path / "net.onnx", tmp_path / "net.program"
    model.write_bytes(network(form, float_ends=float_ends).model)
    values = answer(capsys, "verify", model, "--batch", 4, "--samples", 6)
    assert (values["batch"], values["samples"], values["mismatched_bytes"]) == (4, 6, 0)
    output = next(tensor for tensor in values["tensors"] if tensor["name"].endswith(" (output)"))
    # Of the second inference two samples are missing.
    assert output["bytes"] == 6 * 33 * (4 if float_ends else 1)
    widest = max(values["tensors"], key=lambda tensor: tensor["bytes"])
    assert (widest["bytes"], widest["rtl"]) == (2 * 4 * 640, None)
    assert [layer["right"] for layer in values["layers"]] == [True] * len(values["layers"])
    answer(capsys, "compile", model, "-o", program, "--batch", 4)
    assert answer(capsys, "verify", program, "--samples", 6) == values
