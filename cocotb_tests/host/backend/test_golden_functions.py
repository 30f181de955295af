"""The golden back-end: the bytes of the simulated core, the refusals of its session, and no simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from cocotb_tests.support.networks.mixed import network
from cocotb_tests.support.quantised.graphs import BinaryGraphMaker
from cocotb_tests.support.transports.golden_transport import GoldenTransport
from lutterfly.examples import digits
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.elements import BINARY_BITS
from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.backend import accelerator, find_backend
from lutterfly.host.backend.golden_functions import GoldenFunctions
from lutterfly.host.compiler import batched, compile_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Window
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
    golden, simulated = (InferenceSession(MODELS[name], backend=backend) for backend in ("golden", "simulator"))
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
