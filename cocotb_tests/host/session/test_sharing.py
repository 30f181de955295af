"""One accelerator for several models and threads: whoever uses it gets the bytes of its own model, or an exception."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cocotb_tests.support.networks.generated import Limits, Maker
from cocotb_tests.support.quantised.graphs import GraphMaker
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.units import ErrorCode, Unit
from lutterfly.host import InferenceSession
from lutterfly.host.compiler import compile_graph
from lutterfly.host.driver import ports
from lutterfly.host.driver.driver import AcceleratorError, Driver
from lutterfly.host.driver.transport import FairLock, Transport
from lutterfly.host.graph import Graph, Window
from lutterfly.host.graph.evaluate import evaluate, to_onnx
from lutterfly.host.session.loading import load_program
from lutterfly.host.simulation.simulator import VerilatorTransport

CONFIG = PRESETS["tiny"]
PATIENCE_S = 120
Open = Callable[[], Transport]


@pytest.fixture(params=[GoldenTransport, VerilatorTransport], ids=["golden", "simulated"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return request.param(CONFIG)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Python's threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Network:
    """A small network; those of other seeds differ in weights alone, so that their programs lie at equal addresses."""

    def __init__(self, seed: int):
        maker = GraphMaker((5, 5, 3), seed=seed)
        inner = maker.max_pool(maker.convolution("x", 6, Window((3, 3), pads=(1, 1, 1, 1))), Window((2, 2), (2, 2)))
        self.graph: Graph = maker.finish(maker.fully_connected(inner, 5))
        self.program: Program = compile_graph(self.graph, CONFIG)
        self._rng = np.random.default_rng(seed)

    def sample(self) -> tuple[list[np.ndarray], np.ndarray]:
        """An input, and the output that belongs to it."""
        codes = self._rng.integers(-128, 128, (5, 5, 3), dtype=np.int8)
        name = self.graph.outputs[0]
        expected = to_onnx(self.graph.tensors[name].views[0], evaluate(self.graph, {"x": codes})[name])
        return [to_onnx(self.graph.tensors["x"].views[0], codes)], expected


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    return [Network(seed) for seed in range(3)]


def loaded(transport: Transport, program: Program) -> Driver:
    driver = Driver(transport, CONFIG)
    driver.load(program)
    return driver


def infer_one(driver: Driver, network: Network) -> None:
    inputs, expected = network.sample()
    np.testing.assert_array_equal(driver.infer(inputs)[0], expected)


def side_by_side(*work: Callable[[], object]) -> list[object]:
    """Each in a thread of its own, all at a time; the results, or the first exception."""
    barrier = threading.Barrier(len(work))

    def begin(one: Callable[[], object]) -> object:
        barrier.wait(PATIENCE_S)
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(PATIENCE_S) for future in [pool.submit(begin, one) for one in work]]


def test_the_networks_lie_at_equal_addresses(networks: list[Network]) -> None:
    first, second, _ = (network.program for network in networks)
    assert first != second
    for kind in ("prologue", "body"):
        layouts = [
            (queues.dma.address, len(queues.dma.commands), queues.compute.address, len(queues.compute.commands))
            for queues in (getattr(first.cores[0], kind), getattr(second.cores[0], kind))
        ]
        assert layouts[0] == layouts[1]


def test_drivers_that_take_turns(transport: Transport, networks: list[Network]) -> None:
    drivers = [loaded(transport, network.program) for network in networks]
    for index in (0, 0, 1, 2, 1, 0, 2, 2):
        infer_one(drivers[index], networks[index])
    # Whoever goes first.
    del drivers[0]
    infer_one(drivers[0], networks[1])
    infer_one(drivers[1], networks[2])


def test_the_prologue_runs_when_it_must_and_only_then(networks: list[Network]) -> None:
    transport = GoldenTransport(CONFIG)
    first, second, _ = networks
    copy = Program.from_bytes(first.program.to_bytes())
    drivers = {"a": (loaded(transport, first.program), first), "A": (loaded(transport, copy), first)}
    drivers["b"] = loaded(transport, second.program), second
    prologue, body = (getattr(first.program.cores[0], kind).dma.address for kind in ("prologue", "body"))
    assert transport.starts == [prologue, prologue]
    del transport.starts[:]
    for name in "bbaaAAabA":
        infer_one(*drivers[name])
    assert ["P" if start == prologue else "." for start in transport.starts] == list("..P.....P.P.")
    assert set(transport.starts) == {prologue, body}


def test_a_program_that_is_resident_is_not_written_again(networks: list[Network]) -> None:
    transport = GoldenTransport(CONFIG)
    first, second = (loaded(transport, networks[0].program) for _ in range(2))
    address = transport.arena_base + networks[0].program.constants_address
    constants = networks[0].program.constants
    # The golden machine has the weights on the chip: nobody reads these.
    transport.write_memory(address, bytes(len(constants)))
    infer_one(first, networks[0])
    infer_one(second, networks[0])
    second.load(networks[0].program)
    assert transport.read_memory(address, len(constants)) == bytes(len(constants))
    second.reset()
    infer_one(first, networks[0])
    assert transport.read_memory(address, len(constants)) == constants


@pytest.mark.parametrize("trouble", ["error", "reset", "hang"])
def test_trouble_in_one_driver_harms_no_other(networks: list[Network], trouble: str) -> None:
    transport = GoldenTransport(CONFIG)
    drivers = [loaded(transport, network.program) for network in networks]
    inputs, _ = networks[0].sample()
    if trouble == "reset":
        drivers[0].begin(inputs)
        drivers[0].reset()
    else:
        transport.hangs = trouble == "hang"
        transport.next_error = MachineError(ErrorCode.AXI_SLAVE, Unit.LOAD, 0, 0x40)
        with pytest.raises(AcceleratorError):
            drivers[0].infer(inputs)
        transport.hangs, transport.next_error = False, None
    for driver, network in zip(drivers[::-1], networks[::-1], strict=True):
        infer_one(driver, network)


def test_who_is_interrupted_between_begin_and_finish_is_told(transport: Transport, networks: list[Network]) -> None:
    first, second = (loaded(transport, network.program) for network in networks[:2])
    for disturb in (lambda: infer_one(second, networks[1]), second.reset):
        first.begin(networks[0].sample()[0])
        disturb()
        with pytest.raises(RuntimeError, match=r"^an inference must have the accelerator until its end, and another "):
            first.finish()
        with pytest.raises(RuntimeError, match=r"^an inference must have begun; call begin$"):
            first.finish()
        infer_one(first, networks[0])


def test_a_thread_does_not_finish_what_another_has_begun(networks: list[Network]) -> None:
    driver = loaded(GoldenTransport(CONFIG), networks[0].program)
    inputs, expected = networks[0].sample()
    driver.begin(networks[0].sample()[0])
    with ThreadPoolExecutor(1) as other:
        other.submit(driver.begin, inputs).result(PATIENCE_S)
        with pytest.raises(RuntimeError, match=r"^an inference must have the accelerator until its end, and another "):
            driver.finish()
        np.testing.assert_array_equal(other.submit(driver.finish).result(PATIENCE_S)[0], expected)
    infer_one(driver, networks[0])


def test_counters_are_those_of_the_drivers_own_run(networks: list[Network]) -> None:
    transport = GoldenTransport(CONFIG)
    drivers = [loaded(transport, network.program) for network in networks[:2]]
    infer_one(drivers[0], networks[0])
    transport.values["CYCLES"] = 7
    assert drivers[0].counters()["cycles"] == 1000
    with pytest.raises(RuntimeError, match=r"^an inference must have ended; call infer$"):
        Driver(transport, CONFIG).counters()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("writes", range(9))
def test_a_register_that_could_not_be_written_is_not_taken_for_written(
    monkeypatch: pytest.MonkeyPatch, networks: list[Network], writes: int
) -> None:
    transport = GoldenTransport(CONFIG)
    drivers = [loaded(transport, network.program) for network in networks[:2]]
    left, write = itertools.count(-writes), transport.write_register

    def fail(address: int, value: int) -> None:
        if next(left) == 0:
            raise OSError("unplugged")
        write(address, value)

    monkeypatch.setattr(transport, "write_register", fail)
    with pytest.raises(OSError, match="unplugged"):
        drivers[0].infer(networks[0].sample()[0])
    for driver, network in zip(drivers * 2, networks[:2] * 2, strict=True):
        infer_one(driver, network)


def test_a_batch_beside_single_samples() -> None:
    maker = Maker(np.random.default_rng(5), "qop", unsigned=False, limits=Limits(channels=64))
    maker.start((1, 20))
    maker.fully_connected(7)
    model = maker.finish()
    feeds = {"x": np.concatenate([model.feeds(seed)["x"] for seed in range(6)])}
    expected = InferenceSession(model.model, CONFIG, GoldenTransport(CONFIG)).run(None, feeds)
    transport = GoldenTransport(CONFIG)
    sessions = [InferenceSession(model.model, CONFIG, transport, batch=batch) for batch in (1, 4, 1, 6)]
    for session in sessions + sessions[::-1]:
        np.testing.assert_array_equal(session.run(None, feeds), expected)


# --- threads


@pytest.fixture(scope="module")
def answers() -> dict[str, np.ndarray]:
    """What each form of the demo network says of some images, in one thread."""
    opened = {form: InferenceSession(digits.model_path(form), CONFIG, GoldenTransport(CONFIG)) for form in digits.FORMS}
    return {form: session.run(None, {"pixels": IMAGES})[0] for form, session in opened.items()}


#: Read before there are threads: Python's parser, which NumPy reads headers with, counts its depth for all of them.
IMAGES = digits.images()[:4]


def check(session: InferenceSession, expected: np.ndarray, index: int) -> None:
    found = session.run(["logits"], {"pixels": IMAGES[index : index + 1]})[0]
    np.testing.assert_array_equal(found, expected[index : index + 1])


@pytest.mark.regress
@pytest.mark.usefixtures("eager_threads")
def test_a_session_in_several_threads(transport: Transport, answers: dict[str, np.ndarray]) -> None:
    session = InferenceSession(digits.model_path("qop"), CONFIG, transport)
    side_by_side(*(lambda index=index: [check(session, answers["qop"], index) for _ in range(3)] for index in range(4)))
    assert len(session.counters) == 1


@pytest.mark.regress
@pytest.mark.usefixtures("eager_threads")
def test_sessions_on_one_transport_in_several_threads(transport: Transport, answers: dict[str, np.ndarray]) -> None:
    sessions = {form: InferenceSession(digits.model_path(form), CONFIG, transport) for form in digits.FORMS}
    side_by_side(
        *(
            lambda form=form, index=index: [check(sessions[form], answers[form], index) for _ in range(2)]
            for form in digits.FORMS
            for index in range(2)
        )
    )


@pytest.mark.usefixtures("eager_threads")
def test_the_first_run_in_several_threads_makes_one_simulator(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, np.ndarray]
) -> None:
    made: list[Transport] = []

    def make(config: object, **_: object) -> Transport:
        made.append(GoldenTransport(CONFIG))
        return made[-1]

    monkeypatch.setattr("lutterfly.host.backend.accelerator.VerilatorTransport", make)
    session = InferenceSession(digits.model_path("qop"), CONFIG)
    side_by_side(*(lambda index=index: check(session, answers["qop"], index) for index in range(4)))
    assert len(made) == 1
    assert len(made[0].starts) == 5


@pytest.mark.regress
@pytest.mark.usefixtures("eager_threads")
def test_an_error_in_one_thread_harms_no_other(answers: dict[str, np.ndarray]) -> None:
    transport = GoldenTransport(CONFIG)
    session = InferenceSession(digits.model_path("qop"), CONFIG, transport)
    session.driver()
    transport.next_error = MachineError(ErrorCode.AXI_SLAVE, Unit.LOAD, 0, 0x40)

    def attempt(index: int) -> bool:
        try:
            check(session, answers["qop"], index)
        except AcceleratorError:
            return False
        return True

    found = side_by_side(*(lambda index=index: [attempt(index) for _ in range(3)] for index in range(4)))
    assert list(itertools.chain.from_iterable(found)).count(False) == 1


@pytest.mark.regress
def test_simulators_of_their_own_run_side_by_side(answers: dict[str, np.ndarray]) -> None:
    def work(form: str) -> None:
        session = InferenceSession(digits.model_path(form), CONFIG)
        for index in range(2):
            check(session, answers[form], index)

    side_by_side(*(lambda form=form: work(form) for form in digits.FORMS))


def test_turns_are_in_order() -> None:
    lock, order, waiting = FairLock(), [], []

    def wait(name: int) -> None:
        with lock.held(), lock.held():
            order.append(name)

    with lock.held():
        for name in range(8):
            waiting.append(threading.Thread(target=wait, args=(name,)))
            waiting[-1].start()
            while len(lock._queue) <= name:
                pass
        assert order == []
    with lock.held():
        order.append("who had it before")
    for thread in waiting:
        thread.join(PATIENCE_S)
    assert order == [*range(8), "who had it before"]


def test_turns_go_on_after_an_exception() -> None:
    lock = FairLock()
    with pytest.raises(ValueError, match="mine"), lock.held():
        raise ValueError("mine")
    assert side_by_side(lambda: lock.held().__enter__() is None) == [True]


def test_turns_go_on_when_one_who_waits_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, wait_for = FairLock(), threading.Condition.wait_for

    def interrupt(condition: threading.Condition, predicate: Callable[[], bool]) -> bool:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        return wait_for(condition, predicate)

    monkeypatch.setattr(threading.Condition, "wait_for", interrupt)
    with pytest.raises(KeyboardInterrupt), lock.held():
        raise AssertionError("it was not this thread's turn")
    assert side_by_side(lambda: lock.held().__enter__() is None) == [True]


def _use_after_fork(session: InferenceSession, results: multiprocessing.SimpleQueue) -> None:
    try:
        session.run(None, {"pixels": digits.images()[:1]})
    except RuntimeError as error:
        results.put(str(error))
    else:
        results.put("no error")


def test_a_forked_process_is_refused() -> None:
    transport = GoldenTransport(CONFIG)
    session = InferenceSession(load_program(digits.model_path("qop"), CONFIG), CONFIG, transport)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    # As if another thread were in the middle of a run.
    with transport.exclusive():
        process = context.Process(target=_use_after_fork, args=(session, results))
        process.start()
        process.join(PATIENCE_S)
    assert results.get() == "a transport must be used in the process that made it; make one after the fork"


def test_the_memory_outlives_the_simulator() -> None:
    transport = VerilatorTransport(CONFIG)
    memory = transport.simulator.memory
    memory[1000:1004] = b"kept"
    del transport
    assert bytes(memory[1000:1004]) == b"kept"
    assert memory.obj.model.call("cycle") > 0


def test_ports_of_shared_programs_are_checked_before_anything_is_evicted(networks: list[Network]) -> None:
    transport = GoldenTransport(CONFIG)
    first, second = (loaded(transport, network.program) for network in networks[:2])
    before = len(transport.starts)
    with pytest.raises(TypeError, match=r"must be an array of int8"):
        first.infer([np.zeros(ports.port_dtype(networks[0].program.inputs[0]).itemsize)])
    infer_one(second, networks[1])
    assert len(transport.starts) == before + 1
