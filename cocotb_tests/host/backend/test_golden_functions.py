"""The golden back-end: the bytes of the simulated core, the refusals of its session, and no simulator."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.networks.mixed import network
from cocotb_tests.support.oracles.lifetimes import wait_until
from cocotb_tests.support.quantised.graphs import BinaryGraphMaker, GraphMaker
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.elements import BINARY_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.backend import accelerator, find_backend, golden_functions
from lutterfly.host.backend.golden_functions import GoldenFunctions, Workers, evaluate_all
from lutterfly.host.compiler import batched, compile_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph, Window
from lutterfly.host.graph.evaluate import outputs_of
from lutterfly.host.program import SpreadBy
from lutterfly.host.session.loading import load, load_program
from lutterfly.host.session.verify import random_feeds

TINY = PRESETS["tiny"]
TWO_CORES = dataclasses.replace(TINY, cluster=ClusterConfig(cores=2))
IMAGES = digits.images()[:5]
MODELS = {
    **{form: digits.model_path(form) for form in digits.FORMS},
    "fast": digits.fast_model_path(),
    "binary": digits.binary_model_path(),
    "brevitas": digits.brevitas_model_path(),
}


def feeds_of(session: InferenceSession, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    return random_feeds(session, session.loaded.graph, np.random.default_rng(seed), count)


def assert_equal(golden: InferenceSession, simulated: InferenceSession, feeds: dict[str, np.ndarray]) -> None:
    found, expected = golden.run(None, feeds), simulated.run(None, feeds)
    assert len(found) == len(expected) > 0
    for mine, other in zip(found, expected, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert mine.tobytes() == other.tobytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", MODELS)
def test_digits_have_the_bytes_of_the_simulated_core(name: str) -> None:
    golden, simulated = (InferenceSession(MODELS[name], TINY, backend=backend) for backend in ("golden", "simulator"))
    assert_equal(golden, simulated, {golden.get_inputs()[0].name: IMAGES})
    assert len(simulated.counters) == len(IMAGES)


#: With several inputs, batches, heads, tails, neither, binary layers and butterflies.
MIXED = [*(("tiny", seed) for seed in range(1, 9)), *(("ecp5-85k", seed) for seed in (0, 1, 3, 6, 9))]


@pytest.mark.regress
@pytest.mark.parametrize(("config", "seed"), MIXED)
def test_mixed_networks_have_the_bytes_of_the_simulated_core(config: str, seed: int) -> None:
    drawn = network(seed, config)
    data = drawn.program().to_bytes()
    golden, simulated = (InferenceSession(data, drawn.config, backend=backend) for backend in ("golden", "simulator"))
    assert_equal(golden, simulated, feeds_of(golden, golden.batch + 1))


@pytest.mark.regress
@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("spread_by", SpreadBy)
def test_several_cores(spread_by: SpreadBy, *, from_file: bool) -> None:
    given = MODELS["qdq"]
    if from_file:
        given = load(given, TWO_CORES, spread_by=spread_by).program.to_bytes()
    golden, simulated = (
        InferenceSession(given, TWO_CORES, spread_by=spread_by, backend=backend) for backend in ("golden", "simulator")
    )
    assert golden.batch == (2 if spread_by is SpreadBy.SAMPLE else 1)
    assert_equal(golden, simulated, {"pixels": IMAGES})


@pytest.mark.regress
def test_several_cores_with_several_samples_each() -> None:
    drawn = network(1, "tiny")
    given = compile_graph(batched(drawn.graph(), 3), TWO_CORES, spread_by=SpreadBy.SAMPLE)
    golden, simulated = (InferenceSession(given, TWO_CORES, backend=backend) for backend in ("golden", "simulator"))
    assert (golden.batch, golden.program.shares) == (6, 2)
    assert_equal(golden, simulated, feeds_of(golden, 8))


def test_of_binary_inputs_signs_count_as_in_the_memory_of_the_core() -> None:
    maker = BinaryGraphMaker((5, 4, 11))
    signs = maker.to_bits(maker.max_pool(maker.to_bits("x"), Window((2, 1))))
    graph = maker.finish(signs, maker.binary_convolution(signs, 6, Window((2, 3)), bits=8))
    program = compile_graph(graph, TINY)
    (port,) = program.inputs
    assert port.bits == BINARY_BITS
    inputs = [np.random.default_rng(0).integers(-128, 128, port.onnx_shape, np.int8)]
    driver = Driver(GoldenTransport(TINY), TINY)
    driver.load(program)
    golden = GoldenFunctions(program, TINY, graph=lambda: graph)
    expected = driver.infer(inputs)
    (found,) = golden.infer([inputs])
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]
    assert set(np.unique(found[0])) == {-1, 1}


@pytest.mark.regress
def test_no_simulator_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object, **__: object) -> None:
        raise AssertionError("there must be no accelerator")

    monkeypatch.setattr(accelerator, "VerilatorTransport", build)
    monkeypatch.setattr(accelerator, "Driver", build)
    (found,) = InferenceSession(MODELS["qdq"], backend="golden").run(None, {"pixels": digits.images()})
    assert np.mean(found.argmax(axis=1) == digits.labels()) > 0.99
    with pytest.raises(AssertionError, match=r"^there must be no accelerator$"):
        InferenceSession(MODELS["qdq"]).run(None, {"pixels": IMAGES})


REFUSED: dict[str, Callable[[str], object]] = {
    "output": lambda backend: InferenceSession(MODELS["qdq"], backend=backend).run(["no"], {"pixels": IMAGES}),
    "input": lambda backend: InferenceSession(MODELS["qdq"], backend=backend).run(None, {"x": IMAGES}),
    "type": lambda backend: InferenceSession(MODELS["qdq"], backend=backend).run(None, {"pixels": IMAGES > 0}),
    "shape": lambda backend: InferenceSession(MODELS["qdq"], backend=backend).run(None, {"pixels": IMAGES[0]}),
    "batch": lambda backend: InferenceSession(MODELS["qdq"], batch=2, backend=backend),
    "model": lambda backend: InferenceSession(b"no model", backend=backend),
    "configuration": lambda backend: InferenceSession(load_program(MODELS["qdq"], "tiny"), backend=backend),
    "butterfly": lambda backend: InferenceSession(MODELS["fast"], "tiny", backend=backend),
    "spread": lambda backend: InferenceSession(
        load_program(MODELS["qdq"], TWO_CORES), TWO_CORES, spread_by=SpreadBy.LAYER, backend=backend
    ),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_the_simulator_refuses(name: str) -> None:
    messages = []
    for backend in ("simulator", "golden"):
        with pytest.raises((TypeError, ValueError)) as caught:
            REFUSED[name](backend)
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]
    assert messages[0][1]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["counters", "core_counters", "transport", "driver"])
def test_what_only_an_accelerator_has_is_refused_by_name(name: str) -> None:
    session = InferenceSession(MODELS["qdq"], backend="golden")
    message = f"^{name} must be left out with the back-end golden, which has no accelerator; leave it out, or take the "
    with pytest.raises(ValueError, match=message):
        getattr(session, name)() if name == "driver" else getattr(session, name)


def test_a_transport_is_refused_before_anything_is_read() -> None:
    message = "^transport must be left out with the back-end golden, which has no accelerator; leave it out, or take "
    with pytest.raises(ValueError, match=message):
        InferenceSession("nothing.onnx", transport=GoldenTransport(TINY), backend="golden")


def test_other_back_ends_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^backend must be one of simulator, golden, not verilog$"):
        InferenceSession("nothing.onnx", backend="verilog")
    assert find_backend("golden") is GoldenFunctions


def test_a_program_that_is_not_its_models_is_refused() -> None:
    program, other = (load_program(MODELS[name], TINY) for name in ("qop", "binary"))
    mixed = dataclasses.replace(program, model=other.model, head=b"", tail=b"")
    with pytest.raises(ValueError, match=r"^model: .* must be .*; the file is damaged: compile again$"):
        InferenceSession(mixed, TINY, backend="golden")


def test_ports_are_checked() -> None:
    program = load_program(MODELS["qop"], TINY)
    golden = GoldenFunctions(program, TINY, graph=lambda: import_model(MODELS["qop"].read_bytes()))
    (port,) = program.inputs
    with pytest.raises(TypeError, match=rf"^{port.name} must be an array of int8, not float32$"):
        next(golden.infer([[np.zeros(port.onnx_shape, np.float32)]]))
    with pytest.raises(ValueError, match=rf"^{port.name} must have the shape "):
        next(golden.infer([[np.zeros(port.onnx_shape[1:], np.int8)]]))


# Evaluation of many samples: in order, in processes only where that pays, and none of them is left.

SHAPE = (3, 3, 5)
PATIENCE_S = 120


def graph_of(seed: int = 0) -> Graph:
    maker = GraphMaker(SHAPE, seed=seed)
    return maker.finish("x", maker.fully_connected("x", 7))


def samples_of(count: int) -> list[list[np.ndarray]]:
    return list(np.random.default_rng(count).integers(-128, 128, (count, 1, *SHAPE), np.int8))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """The processes that are started, as if evaluating took long, on three processor cores; portions of two samples."""
    found, start = [], subprocess.Popen

    def record(*given: object, **named: object) -> subprocess.Popen:
        found.append(start(*given, **named))
        return found[-1]

    monkeypatch.setattr(golden_functions.subprocess, "Popen", record)
    monkeypatch.setattr(golden_functions, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(golden_functions, "PORTION_SAMPLES", 2)
    monkeypatch.setattr(golden_functions, "PORTION_SECONDS", PATIENCE_S)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    return found


def have_ended(processes: list[subprocess.Popen]) -> bool:
    return all(process.returncode is not None for process in processes)


@pytest.mark.regress
@pytest.mark.parametrize("count", [3, 4, 5, 40])
def test_processes_give_the_same_in_order(started: list[subprocess.Popen], count: int) -> None:
    graph, samples = graph_of(), samples_of(count)
    found = list(evaluate_all(graph, iter(samples)))
    expected = [outputs_of(graph, [sample])[0] for sample in samples]
    assert len(found) == count
    for mine, other in zip(found, expected, strict=True):
        assert [codes.tobytes() for codes in mine] == [codes.tobytes() for codes in other]
        assert mine[0].tobytes() != mine[1].tobytes()
    # The first sample is evaluated here, and two make a portion.
    assert 1 <= len(started) <= min(3, count // 2)
    assert have_ended(started)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_samples_wait_for_no_process(started: list[subprocess.Popen], count: int) -> None:
    assert len(list(evaluate_all(graph_of(), iter(samples_of(count))))) == count
    assert not started


def test_fast_samples_wait_for_no_process(started: list[subprocess.Popen], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_functions, "PATIENCE_SECONDS", PATIENCE_S)
    assert len(list(evaluate_all(graph_of(), iter(samples_of(40))))) == 40
    assert not started


@pytest.mark.parametrize(("count", "portions"), [(1, [1]), (3, [1, 2]), (40, [1, 2, 4, 8, 16, 9])])
def test_more_and_more_samples_are_evaluated_together(
    monkeypatch: pytest.MonkeyPatch, count: int, portions: list[int]
) -> None:
    found = []

    def record(graph: Graph, samples: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
        found.append(len(samples))
        return outputs_of(graph, samples)

    monkeypatch.setattr(golden_functions, "outputs_of", record)
    monkeypatch.setattr(golden_functions, "PATIENCE_SECONDS", PATIENCE_S)
    monkeypatch.setattr(golden_functions, "PORTION_SECONDS", PATIENCE_S)
    assert len(list(evaluate_all(graph_of(), iter(samples_of(count))))) == count
    assert found == portions


def test_a_sample_that_takes_long_is_evaluated_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden_functions, "PORTION_SECONDS", 0)
    assert golden_functions._portion(1.0) == 1
    monkeypatch.setattr(golden_functions, "PORTION_SECONDS", 7)
    assert [golden_functions._portion(seconds) for seconds in (8, 7, 2, 1, 1e-9)] == [1, 1, 2, 4, 64]


def test_one_processor_core_evaluates_alone(started: list[subprocess.Popen], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert len(list(evaluate_all(graph_of(), iter(samples_of(40))))) == 40
    assert not started


@pytest.mark.regress
def test_samples_are_taken_as_they_are_needed(started: list[subprocess.Popen]) -> None:
    taken = itertools.count()
    many = (sample for sample in itertools.islice(itertools.cycle(samples_of(2)), 2000) if next(taken) >= 0)
    evaluated = evaluate_all(graph_of(), many)
    for _ in range(50):
        next(evaluated)
    # Two portions of two samples for each of three processes.
    assert next(taken) <= 50 + 12
    evaluated.close()
    assert started
    assert have_ended(started)


@pytest.mark.regress
def test_what_is_wrong_with_a_sample_is_raised_when_its_turn_comes(started: list[subprocess.Popen]) -> None:
    graph, samples = graph_of(), samples_of(20)
    samples[13] = [samples[13][0][:2]]
    evaluated = evaluate_all(graph, iter(samples))
    # The portion of the one that is wrong begins with it.
    assert len(list(itertools.islice(evaluated, 13))) == 13
    with pytest.raises(ValueError, match=r"^x must have the shape \(3, 3, 5\), not \(2, 3, 5\)$"):
        next(evaluated)
    assert started
    assert have_ended(started)


@pytest.mark.regress
@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_no_process_outlives_who_supplies_the_samples(started: list[subprocess.Popen], kind: type[Exception]) -> None:
    def interrupted() -> object:
        yield from samples_of(15)
        raise kind("enough")

    with pytest.raises(kind, match=r"^enough$"):
        list(evaluate_all(graph_of(), interrupted()))
    assert started
    assert have_ended(started)


@pytest.mark.regress
def test_a_process_that_is_killed_is_reported(started: list[subprocess.Popen]) -> None:
    evaluated = evaluate_all(graph_of(), itertools.cycle(samples_of(2)))
    for _ in range(20):
        next(evaluated)
    # Which of them takes the next portion is not known.
    for process in started:
        process.kill()
    message = r"^a process of the back-end golden must answer, and has ended with signal SIGKILL; see that there is "
    with pytest.raises(ChildProcessError, match=message):
        list(itertools.islice(evaluated, 10_000))
    assert have_ended(started)


def test_closing_ends_a_process_that_is_busy() -> None:
    maker = GraphMaker((400, 400, 8))
    graph = maker.finish(maker.convolution("x", 64, Window((3, 3))))
    busy = Workers(graph, 1)
    future = busy.submit([[np.zeros((400, 400, 8), np.int8)]] * 100)
    wait_until(lambda: busy._processes)
    busy.close()
    # It was killed in the middle of them.
    assert isinstance(future.exception(), ChildProcessError)
    assert [process.returncode for process in busy._processes] == [-signal.SIGKILL]


#: A script as users write them, without a guard for processes that import it.
SCRIPT = """\
import os, signal, sys
import numpy as np
from lutterfly.examples import digits
from lutterfly.host import InferenceSession
from lutterfly.host.backend import golden_functions
from lutterfly.host.command.main import main

# Who runs the tests may have it ignored, as a shell does for what it starts in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
golden_functions.PATIENCE_SECONDS = 0
os.sched_getaffinity = lambda _: {0, 1}
print("once", flush=True)
evaluate = golden_functions.Workers._evaluate
def report(self, portion):
    print(self._process().pid, flush=True)
    if sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(self, portion)
if sys.argv[1] == "command":
    golden_functions.Workers._evaluate = report
    np.save("x.npy", np.concatenate([digits.images()] * 200))
    sys.exit(main(["run", str(digits.model_path("qdq")), "--input", "x.npy", "--backend", "golden"]))
session = InferenceSession(digits.model_path("qdq"), "tiny", backend="golden")
if sys.argv[1] == "die":
    golden_functions.Workers._evaluate = report
(logits,) = session.run(None, {"pixels": digits.images()[:40]})
print(int((logits.argmax(axis=1) == digits.labels()[:40]).sum()))
"""


def start_script(folder: Path, word: str) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, "script.py", word],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        process_group=0,
    )


@pytest.mark.regress
def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    with start_script(tmp_path, "run") as process:
        assert process.communicate(timeout=PATIENCE_S) == ("once\n40\n", "")
    assert process.returncode == 0


@pytest.mark.regress
def test_processes_end_with_one_that_is_killed(tmp_path: Path) -> None:
    with start_script(tmp_path, "die") as process:
        words, complaints = process.communicate(timeout=PATIENCE_S)
    assert complaints == ""
    once, *pids = words.split()
    assert once == "once"
    assert_end(pids)


@pytest.mark.regress
def test_an_interrupt_from_the_keyboard_ends_command_and_processes(tmp_path: Path) -> None:
    with start_script(tmp_path, "command") as process:
        assert process.stdout.readline() == "once\n"
        pids = [process.stdout.readline()]
        os.killpg(process.pid, signal.SIGINT)
        words, complaints = process.communicate(timeout=PATIENCE_S)
    assert (complaints, process.returncode) == ("lutterfly: interrupted\n", 130)
    assert_end([*pids, *words.split()])


def assert_end(pids: list[str]) -> None:
    """There are such processes, and they end."""
    assert pids
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids))


def is_running(pid: int) -> bool:
    """Whether a process that evaluates samples has this number, and has not ended."""
    try:
        return b"worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.regress
def test_sessions_use_the_processes(started: list[subprocess.Popen]) -> None:
    images = digits.images()[:24]
    found = InferenceSession(digits.model_path("qdq"), "tiny", backend="golden").run(None, {"pixels": images})[0]
    assert started
    assert have_ended(started)
    np.testing.assert_array_equal(found.argmax(axis=1), digits.labels()[:24])


@pytest.mark.regress
def test_a_session_in_several_threads(started: list[subprocess.Popen]) -> None:
    images = digits.images()[:24]
    session = InferenceSession(digits.model_path("qdq"), "tiny", backend="golden")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda part: session.run(None, {"pixels": part})[0], np.split(images, 4)))
    np.testing.assert_array_equal(np.concatenate(answers).argmax(axis=1), digits.labels()[:24])
    assert len(started) >= 4
    assert have_ended(started)
