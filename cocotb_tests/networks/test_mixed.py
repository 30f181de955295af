"""The third source of networks: features that meet in one graph, ONNX Runtime's bytes on the simulated core."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from cocotb_tests.support.networks.mixed import (
    CONFIGS,
    DRAWN,
    FIRST_ARRANGED,
    FIRST_MIXING,
    FIRST_MOVED,
    FIRST_MULTIPLIED,
    FIRST_WIDE,
    ODD,
    config_of,
    network,
)
from cocotb_tests.support.networks.mixed.features import PAIRS, Meetings, features
from cocotb_tests.support.networks.mixed.trial import Trial, attempt, summary
from cocotb_tests.support.oracles.exactness import needs_reference
from cocotb_tests.support.tiers import core_marks
from lutterfly.golden.engines import ENGINES, MAC
from lutterfly.golden.presets import PRESETS
from lutterfly.host.compiler import plan_graph
from lutterfly.host.graph import Arrange, ElementwiseMaximum, ElementwiseProduct, MatrixProduct
from lutterfly.host.session.verify import verify

pytestmark = needs_reference

ROOT = Path(__file__).parents[2]
#: Seeds by accelerator, of those that other tests build as well and of one with several chains: such that every feature
#: meets every other one; of 20260 two tensors were accused, which ONNX Runtime had named, and named otherwise beside
#: functions.
QUICK = {
    "tiny": (
        *range(14),
        20260,
        *(FIRST_WIDE + seed for seed in (0, 2, 9, 76)),
        *(FIRST_MOVED + seed for seed in (3, 6, 11, 13)),
        *(FIRST_ARRANGED + seed for seed in (0, 1, 3, 7)),
        *(FIRST_MULTIPLIED + seed for seed in (3, 4, 29, 62, 197)),
        *(FIRST_MIXING + seed for seed in (3, 78, 158)),
    ),
    "ecp5-85k": (
        *range(8),
        13,
        106,
        113,
        145,
        202,
        205,
        *(FIRST_WIDE + seed for seed in (8, 50)),
        FIRST_MOVED + 2,
        FIRST_ARRANGED + 6,
        *(FIRST_MULTIPLIED + seed for seed in (25, 45)),
        FIRST_MIXING + 10,
    ),
    "bottom-up": (
        *(*range(5), 38, 46, 63, 76, 97),
        *(FIRST_WIDE + seed for seed in (1, 2)),
        FIRST_ARRANGED + 4,
    ),
    "rows": (*range(6), FIRST_WIDE + 2, FIRST_MOVED + 3, FIRST_MIXING + 3),
}
#: What the quick ones leave to accelerators with rings of fewer commands.
SELDOM = {f"{kind} with longer than the ring" for kind in ("batch", "grouped")}
SELDOM |= {f"longer than the ring with {kind}" for kind in ("maximum", "product")}
#: Whose cycles were predicted wrongly: turns of the two rings that go on from the prologue, a LOAD to another memory
#: after a FILL that waits for results, walkers that results hold up, a first LOAD beside the fetching of both rings,
#: pieces of a FILL that are found while it waits for a LOAD.
LATE = {"least": (5006, 6016, 6030, FIRST_WIDE + 55), "bound": (6000,)}
#: Of several cores, which have a part of each sample or layer.
CLUSTERS = {
    "tiny:2:layer": (
        *(1, 2, 4, 6, 7, 11, 13),
        *(FIRST_WIDE + seed for seed in (2, 9)),
        *(FIRST_MOVED, FIRST_MOVED + 8, FIRST_ARRANGED + 2, FIRST_MULTIPLIED + 2),
    ),
    "tiny:2:sample": (3, 6),
    "least:2:layer:own": (5, 7),
}
MANY_CORES = (
    *CLUSTERS,
    "bottom-up:2:layer",
    "ecp5-85k:2:layer",
    "wide:2:layer",
    "small:2:sample",
    "tiny:4:layer",
    f"{DRAWN}3:4:sample",
)
BLOCK = 20
#: First seeds, and how many blocks follow.
BEGINNINGS = ((0, 15), (FIRST_WIDE, 4), (FIRST_MOVED, 4), (FIRST_ARRANGED, 4), (FIRST_MULTIPLIED, 4), (FIRST_MIXING, 3))
#: Of a block: an odd accelerator's memories may hold too little, and on it a layer's cycles may be predicted wrongly.
REFUSED, OFF = 2, 1
#: Which is no fault of an odd accelerator: cores that share each layer do not multiply two activations.
OF_ONE_CORE = "weights that another layer computes are of one core"


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("config_name", "seed"),
    [
        pytest.param(name, seed, marks=core_marks(name))
        for names in (QUICK, CLUSTERS)
        for name, seeds in names.items()
        for seed in seeds
    ],
)
def test_networks_on_the_core(config_name: str, seed: int) -> None:
    trial = attempt(seed, config_name)
    assert trial.refused + trial.problem == "", trial.text
    assert trial.bytes


@pytest.mark.regress
@pytest.mark.parametrize(("config_name", "seed"), [(name, seed) for name, seeds in LATE.items() for seed in seeds])
def test_cycles_are_as_predicted(config_name: str, seed: int) -> None:
    trial = attempt(seed, config_name)
    assert trial.bytes
    assert trial.late == []


@pytest.mark.regress
@pytest.mark.parametrize("first", [start + BLOCK * n for start, count in BEGINNINGS for n in range(count)])
@pytest.mark.parametrize("config_name", [*CONFIGS, *MANY_CORES])
def test_many_networks_on_the_core(config_name: str, first: int) -> None:
    trials = [attempt(seed, config_name) for seed in range(first, first + BLOCK)]
    print(summary(trials))
    assert [trial.text for trial in trials if trial.problem] == []
    assert sum(bool(trial.refused) and OF_ONE_CORE not in trial.refused for trial in trials) <= REFUSED
    assert sum(bool(trial.late) for trial in trials) <= OFF * (config_name not in PRESETS)


@pytest.mark.regress
@pytest.mark.parametrize("number", range(30))
def test_networks_on_drawn_accelerators(number: int) -> None:
    trials = [attempt(seed, f"{DRAWN}{number}") for seed in range(10)]
    print(summary(trials))
    assert [trial.text for trial in trials if trial.problem] == []
    assert any(trial.bytes for trial in trials)
    assert sum(bool(trial.late) for trial in trials) <= OFF


def test_drawn_accelerators_have_any_engines() -> None:
    configs = [config_of(f"{DRAWN}{number}") for number in range(30)]
    assert configs == [config_of(f"{DRAWN}{number}") for number in range(30)]
    engines = [frozenset(config.engines) for config in configs]
    assert len(set(engines)) > 20
    for engine in set(ENGINES) - {MAC}:
        assert 10 < sum(engine in chosen for chosen in engines) < 30
    assert {config.resident_commands for config in configs} == {4, 8, 16, 32, 64}


def met(networks: Iterable[tuple[str, int]]) -> Meetings:
    meetings = Meetings()
    for config_name, seed in networks:
        found = network(seed, config_name)
        meetings.sample(features(found.graph(), found.program(), found.config))
    return meetings


def quick() -> Iterator[tuple[str, int]]:
    return ((name, seed) for name, seeds in QUICK.items() for seed in seeds)


@pytest.mark.regress
def test_every_feature_meets_every_other_one() -> None:
    assert set(met(quick()).holes()) - SELDOM == set()


@pytest.mark.regress
def test_small_rings_leave_no_hole() -> None:
    small = (("small", first + seed) for first in (0, FIRST_MULTIPLIED) for seed in range(60))
    assert met([*quick(), *small]).holes() == []


def test_a_hole_is_named() -> None:
    meetings = Meetings()
    assert len(meetings.holes()) == len(PAIRS)
    meetings.sample(["fast", "binary"])
    assert "binary with fast" not in meetings.holes()
    assert "fast with sparse" in meetings.holes()
    assert not any("fast" in hole for hole in meetings.holes(without=["fast"]))


@pytest.mark.regress
def test_a_seed_always_gives_the_same_network() -> None:
    for seed in (3, 1000):
        assert network(seed, "least") == network(seed, "least")
        assert network(seed, "least").program().cores[0].body == network(seed, "least").program().cores[0].body
    assert network(0, "tiny").model != network(8, "tiny").model


def test_16_bits_are_drawn_in_every_form_and_at_the_ends() -> None:
    """Operator set 21 and the contrib domain; codes between others, inputs and outputs; none before the first seed."""
    kinds = {onnx.TensorProto.INT16, onnx.TensorProto.UINT16}
    written, at_ends, seeds = Counter(), Counter(), range(FIRST_WIDE - 8, FIRST_WIDE + 40)
    for seed in seeds:
        model = onnx.load_from_string(network(seed, "ecp5-85k").model)
        wide = {tensor.name: tensor.data_type for tensor in model.graph.initializer if tensor.data_type in kinds}
        assert seed >= FIRST_WIDE or not wide
        nodes = [node for node in model.graph.node if wide.keys() & {*node.input}]
        written.update({(model.opset_import[0].version, node.domain, wide[node.input[2]]) for node in nodes})
        for end in ("input", "output"):
            at_ends[end] += any(value.type.tensor_type.elem_type in kinds for value in getattr(model.graph, end))
    forms = itertools.product([(21, ""), (21, "com.microsoft"), (17, "com.microsoft")], kinds)
    assert written.keys() == {(*form, kind) for form, kind in forms}
    assert min(written.values()) > 4
    assert min(at_ends["input"], at_ends["output"]) > 4


def test_elements_move_from_the_first_seed_on() -> None:
    """By each operator, on codes and between float tensors, and in no network before."""
    seeds, drawn = [*range(FIRST_MOVED - 8, FIRST_MOVED + 24)], Counter()
    for seed in seeds:
        model = onnx.load_from_string(network(seed, "ecp5-85k").model)
        makers = {name: node.op_type for node in model.graph.node for name in node.output}
        for node in model.graph.node:
            if node.op_type in ("Resize", "DepthToSpace", "SpaceToDepth"):
                assert seed >= FIRST_MOVED
                drawn[node.op_type, makers.get(node.input[0]) == "DequantizeLinear"] += 1
    assert drawn.keys() == set(itertools.product(("Resize", "DepthToSpace", "SpaceToDepth"), (False, True)))


@pytest.mark.regress
def test_elements_move_along_any_axis_from_the_first_seed_on() -> None:
    """Layers of every kind of move, of which the file has each on codes and between float tensors."""
    titles, drawn = Counter(), Counter()
    for seed in range(FIRST_ARRANGED - 8, FIRST_ARRANGED + 32):
        found = network(seed, "ecp5-85k")
        model = onnx.load_from_string(found.model)
        makers = {name: node.op_type for node in model.graph.node for name in node.output}
        for node in model.graph.node:
            if node.op_type in ("Gather", "Transpose", "Reshape"):
                assert seed >= FIRST_ARRANGED
                drawn[node.op_type, makers.get(node.input[0]) == "DequantizeLinear"] += 1
        titles.update(layer.title for layer in found.graph().layers if isinstance(layer, Arrange))
    assert drawn.keys() == set(itertools.product(("Gather", "Transpose", "Reshape"), (False, True)))
    assert titles.keys() == {"arrangement", "border", "concatenation", "shuffle"}
    assert min(titles.values()) > 4


@pytest.mark.regress
def test_two_activations_become_one_from_the_first_seed_on() -> None:
    """Products of maps, and of a map and a vector; maxima and minima."""
    drawn = Counter()
    for seed in range(FIRST_MULTIPLIED, FIRST_MULTIPLIED + 40):
        for layer in network(seed, "ecp5-85k").graph().layers:
            if isinstance(layer, ElementwiseMaximum | ElementwiseProduct):
                drawn[type(layer).__name__] += 1
                drawn["by vector"] += getattr(layer, "is_by_vector", False)
    assert min(drawn["ElementwiseMaximum"], drawn["ElementwiseProduct"] - drawn["by vector"], drawn["by vector"]) > 4


@pytest.mark.regress
def test_matrices_are_multiplied_from_the_first_seed_on() -> None:
    """Single ones and stacks of them, whose second operand is turned or not; and none before."""
    products = [
        [layer for layer in network(seed, "ecp5-85k").graph().layers if isinstance(layer, MatrixProduct)]
        for seed in range(FIRST_MIXING - 8, FIRST_MIXING + 60)
    ]
    assert not any(products[:8])
    assert sum(len(found) == 1 for found in products) > 4
    assert sum(len({layer.name for layer in found}) < len(found) for found in products) > 2
    rises = [int(np.diff(layer.order[0])[0]) for found in products for layer in found if layer.order.shape[1] > 1]
    assert min(rises.count(1), sum(rise > 1 for rise in rises)) > 2


@pytest.mark.regress
def test_orders_are_drawn_whether_they_pay_or_not() -> None:
    found = [network(seed, "ecp5-85k") for seed in range(0, 64, 8)]
    moved = [any(tensor.order for tensor in entry.program().cores[0].written) for entry in found]
    chosen = [any(t.order for t in plan_graph(entry.graph(), entry.config).graph.tensors.values()) for entry in found]
    assert sum(moved) > 2 * sum(chosen), (moved, chosen)


def test_odd_accelerators_have_butterflies_and_binary_layers() -> None:
    engines = {frozenset(engine.name for engine in config.engines) for config in ODD.values()}
    assert len(engines) >= 5
    assert sum("FPC" in names for names in engines) >= 4
    assert sum("XNOR" in names for names in engines) >= 3
    assert all(config not in PRESETS.values() for config in ODD.values())


@pytest.mark.regress
def test_what_is_wrong_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong byte of an output, one of an inner tensor alone, and cycles."""
    found = network(1, "tiny")
    right = verify(found.program().to_bytes(), found.config, samples=1)
    monkeypatch.setattr("cocotb_tests.support.networks.mixed.trial.verify", lambda *_, **__: right)
    assert not attempt(1, "tiny").problem
    inner, output = (next(t for t in right.tensors if t.name.endswith("(output)") == is_output) for is_output in (0, 1))
    inner.rtl = 2
    assert attempt(1, "tiny").problem == f"bytes differ in {inner.name}"
    output.rtl = 3
    assert attempt(1, "tiny").problem == "3 bytes of outputs differ"
    right.layers[0] = dataclasses.replace(right.layers[0], measured=right.layers[0].predicted + 1000)
    assert "predicted" in attempt(1, "tiny").late[0]


@pytest.mark.regress
def test_a_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    """What stands in the file is not tried again, and counts: here a network that stopped, one refused, and one off."""
    path = tmp_path / "mixed.jsonl"
    trials = [
        Trial(0, "tiny", "first", bytes=10, stopped="SimulationError: it hangs"),
        Trial(1, "tiny", "second", refused="conv_3: it needs 4224 bytes of list memory"),
        Trial(2, "tiny", "third", bytes=5, late=["conv_1 took 9 cycles, 99 predicted"]),
    ]
    path.write_text("".join(json.dumps(dataclasses.asdict(trial)) + "\n" for trial in trials))
    command = [
        sys.executable,
        "-m",
        "cocotb_tests.support.networks.mixed.trial",
        "--configs",
        "tiny",
        "--last",
        "3",
        "--results",
        path,
    ]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1, 2, 3]
    for line in (
        "networks tried: 3",
        "networks that stopped: 1",
        "networks off the predicted cycles: 1",
        "    1: it needs N bytes of list memory",
        "first: SimulationError: it hangs",
    ):
        assert line in said.splitlines()
