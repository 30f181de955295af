"""Evaluation of many samples: in order, in processes only where that pays, and none of them is left."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cocotb_tests.support.oracles.lifetimes import wait_until
from cocotb_tests.support.quantised.graphs import GraphMaker
from lutterfly.examples import digits
from lutterfly.host import InferenceSession
from lutterfly.host.backend import evaluating, workers
from lutterfly.host.backend.evaluating import evaluate_all
from lutterfly.host.backend.workers import Workers
from lutterfly.host.graph import Graph, Window
from lutterfly.host.graph.evaluate import outputs_of

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

    monkeypatch.setattr(workers.subprocess, "Popen", record)
    monkeypatch.setattr(evaluating, "PATIENCE_SECONDS", 0)
    monkeypatch.setattr(evaluating, "PORTION_SAMPLES", 2)
    monkeypatch.setattr(evaluating, "PORTION_SECONDS", PATIENCE_S)
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
    monkeypatch.setattr(evaluating, "PATIENCE_SECONDS", PATIENCE_S)
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

    monkeypatch.setattr(evaluating, "outputs_of", record)
    monkeypatch.setattr(evaluating, "PATIENCE_SECONDS", PATIENCE_S)
    monkeypatch.setattr(evaluating, "PORTION_SECONDS", PATIENCE_S)
    assert len(list(evaluate_all(graph_of(), iter(samples_of(count))))) == count
    assert found == portions


def test_a_sample_that_takes_long_is_evaluated_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluating, "PORTION_SECONDS", 0)
    assert evaluating._portion(1.0) == 1
    monkeypatch.setattr(evaluating, "PORTION_SECONDS", 7)
    assert [evaluating._portion(seconds) for seconds in (8, 7, 2, 1, 1e-9)] == [1, 1, 2, 4, 64]


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
from lutterfly.host.backend import evaluating, workers
from lutterfly.host.command.main import main

# Who runs the tests may have it ignored, as a shell does for what it starts in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
evaluating.PATIENCE_SECONDS = 0
os.sched_getaffinity = lambda _: {0, 1}
print("once", flush=True)
evaluate = workers.Workers._evaluate
def report(self, portion):
    print(self._process().pid, flush=True)
    if sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return evaluate(self, portion)
if sys.argv[1] == "command":
    workers.Workers._evaluate = report
    np.save("x.npy", np.concatenate([digits.images()] * 200))
    sys.exit(main(["run", str(digits.model_path("qdq")), "--input", "x.npy", "--backend", "golden"]))
session = InferenceSession(digits.model_path("qdq"), "tiny", backend="golden")
if sys.argv[1] == "die":
    workers.Workers._evaluate = report
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
