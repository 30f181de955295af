"""By layer on several cores: the parts that are chosen, the bytes of one core, fewer cycles, and sound barriers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from cocotb_tests.support.networks.mixed import FIRST_ARRANGED, FIRST_MOVED, FIRST_WIDE, config_of, network
from cocotb_tests.support.oracles.execution import get_output, put_input
from cocotb_tests.support.quantised.graphs import GraphMaker, random_arranged
from lutterfly.golden.config import Config
from lutterfly.golden.config_parts import ClusterConfig
from lutterfly.golden.isa import COMMAND_BYTES, LOAD, Opcode
from lutterfly.golden.machine.images import new_arena
from lutterfly.golden.machine.machine import Machine, interleavings
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program, Queues
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import CompileError, compile_graph, encode, plan_graph, search, spread_graph
from lutterfly.host.compiler.cluster.by_layer import check_synchronisation, choose_parts, on_one
from lutterfly.host.compiler.cluster.estimate import Estimate
from lutterfly.host.compiler.cluster.split import Split, part_of, parts_of
from lutterfly.host.compiler.emit import check_program, emit
from lutterfly.host.compiler.passes import OPERATIONS, rewritten, run
from lutterfly.host.compiler.plan import Plan, Spread
from lutterfly.host.compiler.search import Candidate
from lutterfly.host.frontend import import_model
from lutterfly.host.graph import Graph, Slice, Window
from lutterfly.host.graph.evaluate import evaluate
from lutterfly.host.program import SpreadBy

SAME = Window((3, 3), pads=(1, 1, 1, 1))


def several(config: Config, cores: int) -> Config:
    return dataclasses.replace(config, cluster=ClusterConfig(cores))


def seen(program: Program) -> set[str]:
    """The tensors that verification compares."""
    return {tensor.name for core in program.cores for tensor in (*core.written, *core.spilled)}


def assert_exact(graph: Graph, spread: Spread, seed: int) -> None:
    """Every tensor, in a few orders of the queues and turns of the cores, two inferences in each."""
    config, program, rng = spread.config, emit(spread, "custom"), np.random.default_rng(seed)
    check_program(spread, program)
    one = encode(plan_graph(graph, dataclasses.replace(config, cluster=ClusterConfig())))
    # A slice may be some channels of what another core has computed.
    slices = {layer.output for layer in graph.layers if isinstance(layer, Slice)}
    assert seen(one) - slices <= seen(program) <= seen(one) | slices
    machine, arena = Machine(config, seed=seed), new_arena(program, config)
    machine.run_prologue(program, arena)
    for order, turns in itertools.islice(interleavings(config.cores), seed % 3, 3 + config.cores, 3):
        inputs = {name: rng.integers(-128, 128, graph.tensors[name].shape, np.int8) for name in graph.inputs}
        for name, port in zip(graph.inputs, program.inputs, strict=True):
            put_input(arena, port, inputs[name])
        (found,) = machine.run_body(program, arena, order=order, turns=turns)
        known = evaluate(graph, inputs)
        for name, port in zip(graph.outputs, program.outputs, strict=True):
            np.testing.assert_array_equal(get_output(arena, port), known[name], name)
        for name, codes in found.items():
            np.testing.assert_array_equal(codes, known[name], name)


def drawn(graph: Graph, config: Config, seed: int) -> Spread:
    """Any split of every layer."""
    rng, net = np.random.default_rng(seed), rewritten(graph, config)
    parts = []
    for layer in net.graph.layers:
        units = {Split.CHANNELS: (8, 3, 1)}
        choices = [
            found
            for split in Split
            for unit in units.get(split, (1,))
            if (found := parts_of(net.graph, layer, split, config.cores, unit))
        ]
        parts.append(choices[rng.integers(len(choices))])
    return Candidate(net, is_permuted=False, parts=parts, way=0, is_wide=True).planned()


@pytest.mark.regress
@pytest.mark.parametrize(
    ("config_name", "cores", "seeds"),
    [
        ("tiny", 2, range(20)),
        ("tiny", 4, range(20, 26)),
        ("least", 2, range(32, 40)),
        ("ecp5-85k", 2, range(40, 48)),
        ("tiny", 8, range(FIRST_WIDE, FIRST_WIDE + 2)),
        ("tiny", 2, range(FIRST_MOVED, FIRST_MOVED + 4)),
        ("tiny", 2, range(FIRST_ARRANGED, FIRST_ARRANGED + 6)),
        pytest.param("tiny", 4, range(26, 32), marks=pytest.mark.regress),
        pytest.param("tiny", 8, range(FIRST_WIDE + 2, FIRST_WIDE + 4), marks=pytest.mark.regress),
        pytest.param("tiny", 2, range(100, 300), marks=pytest.mark.regress),
        pytest.param("tiny", 4, range(300, 500), marks=pytest.mark.regress),
        pytest.param("bottom-up", 2, range(500, 600), marks=pytest.mark.regress),
    ],
)
def test_mixed_networks_are_exact_however_they_are_split(config_name: str, cores: int, seeds: range) -> None:
    config, met = several(config_of(config_name), cores), 0
    for seed in seeds:
        graph = import_model(network(seed, config_name).model)
        try:
            plan_graph(graph, config)
        except CompileError:
            continue
        for spread in (drawn(graph, config, seed), spread_graph(graph, config, SpreadBy.LAYER)):
            assert_exact(graph, spread, seed)
            met += sum(command.opcode is Opcode.BARRIER for command in spread.plans[-1].commands)
    assert met > len(seeds)


@pytest.mark.regress
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 60), marks=pytest.mark.regress)], ids=str)
def test_elements_that_move_are_exact_however_they_are_split(seeds: range) -> None:
    for seed in seeds:
        graph, config = random_arranged(seed), several(PRESETS["tiny"], 4 if seed % 2 else 2)
        for spread in (drawn(graph, config, seed), spread_graph(graph, config, SpreadBy.LAYER)):
            assert_exact(graph, spread, seed)


def test_an_upsampling_is_split_at_whole_rows_of_its_input() -> None:
    maker = GraphMaker((5, 4, 16))
    graph = maker.finish(maker.nearest(maker.convolution("x", 16, SAME)))
    move = graph.layers[-1]
    rows = [part.rows for part in parts_of(graph, move, Split.ROWS, 4, 1)]
    assert rows == [range(4), range(4, 6), range(6, 8), range(8, 10)]
    assert move.of_rows(range(5), 5) is None
    assert parts_of(graph, move, Split.CHANNELS, 2, 8) is not None


def test_no_job_of_an_upsampling_is_without_a_command() -> None:
    """The first of two rows is what the layer in front writes, and another core reads it."""
    maker = GraphMaker((16, 16, 4))
    graph = maker.finish(maker.convolution(maker.nearest(maker.convolution("x", 16, SAME), (2, 1)), 8, SAME))
    network = rewritten(graph, several(PRESETS["ecp5-85k"], 2))
    parts = [parts_of(network.graph, layer, Split.ROWS, 2, 1) for layer in network.graph.layers]
    spread = Candidate(network, is_permuted=False, parts=parts, way=0, is_wide=True).planned()
    assert all(any(place.steps == (2, 1) for place in plan.views.values()) for plan in spread.plans)
    assert all(all(plan.computes) for plan in spread.plans)
    assert_exact(graph, spread, 0)


def two_convolutions(channels: int = 16, side: int = 24) -> Graph:
    maker = GraphMaker((side, side, channels))
    return maker.finish(maker.convolution(maker.convolution("x", channels, SAME), channels, SAME))


@pytest.mark.parametrize(("preset", "cores", "most"), [("ecp5-85k", 2, 0.6), ("ecp5-85k", 4, 0.4), ("tiny", 4, 0.35)])
def test_a_layer_takes_its_share_of_the_cycles(preset: str, cores: int, most: float) -> None:
    graph = two_convolutions()
    one = plan_graph(graph, PRESETS[preset]).predicted_cycles
    assert spread_graph(graph, several(PRESETS[preset], cores), SpreadBy.LAYER).predicted_cycles < most * one


@pytest.mark.regress
def test_words_in_the_models_order_are_those_of_layers_that_read_alike() -> None:
    """The input's rows are interleaved, and other channels than the model's lie side by side."""
    maker = GraphMaker((64, 64, 3))
    hidden = maker.convolution("x", 8, Window((3, 3), (2, 2), pads=(0, 0, 1, 1)))
    graph = maker.finish(maker.convolution(maker.convolution(hidden, 32, Window((1, 1))), 16, Window((1, 1))))
    for layer in graph.layers[1:]:
        outputs, _, _, inputs = layer.weights.shape
        layer.weights.swapaxes(1, 3)[np.arange(outputs)[:, None] % 4 != np.arange(inputs) % 4] = 0
    program = compile_graph(graph, several(PRESETS["tiny"], 2), spread_by=SpreadBy.LAYER)
    for core in program.cores:
        assert any("3 rows interleaved" in layer.fold for layer in core.layers)
        assert all(layer.words <= layer.model_words <= layer.dense_words for layer in core.layers)
        assert any(layer.words < layer.model_words for layer in core.layers)


def test_what_is_small_stays_on_one_core() -> None:
    graph = two_convolutions(8, 4)
    config = several(PRESETS["ecp5-85k"], 2)
    spread = spread_graph(graph, config, SpreadBy.LAYER)
    one = plan_graph(graph, PRESETS["ecp5-85k"])
    assert [len(plan.commands) for plan in spread.plans] == [len(one.commands), 0]
    assert [command.encode() for command in spread.plans[0].commands] == [command.encode() for command in one.commands]
    assert_exact(graph, spread, 0)


def test_a_part_that_does_not_fit_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, config = two_convolutions(), several(PRESETS["ecp5-85k"], 2)
    once = search.plan_parts

    def refusing(net, parts):
        if parts != on_one(net):
            raise CompileError("too much")
        return once(net, parts)

    monkeypatch.setattr(search, "plan_parts", refusing)
    assert spread_graph(graph, config, SpreadBy.LAYER).plans[1].commands == ()


def test_a_network_that_fits_no_core_is_refused() -> None:
    config = several(PRESETS["tiny"], 2)
    small = dataclasses.replace(config, memory=dataclasses.replace(config.memory, feature_bytes=64))
    with pytest.raises(CompileError, match="choose a larger --config"):
        spread_graph(two_convolutions(), small, SpreadBy.LAYER)


def test_constants_that_the_cores_have_in_common_lie_there_once() -> None:
    graph = two_convolutions()
    program = compile_graph(graph, several(PRESETS["ecp5-85k"], 2), spread_by=SpreadBy.LAYER)
    one = compile_graph(graph, PRESETS["ecp5-85k"])
    # With rows each has all weights.
    first, second = (places(core.prologue)[LocalMemory.WEIGHT] for core in program.cores)
    assert first == second
    assert len(one.constants) <= len(program.constants) < 2 * len(one.constants)


def places(queues: Queues) -> dict[int, int]:
    """The external address of the LOAD of each memory."""
    commands = queues.dma.commands[:-COMMAND_BYTES]
    loads = [LOAD.decode(commands[at : at + COMMAND_BYTES]) for at in range(0, len(commands), COMMAND_BYTES)]
    return {load["memory"]: load["external"] for load in loads}


def test_of_maps_of_several_heights_all_rows_are_needed() -> None:
    maker = GraphMaker((6, 5, 3))
    parts = maker.convolution("x", 8, SAME), maker.convolution("x", 8, Window((3, 3), pads=(0, 1, 0, 1)))
    graph = maker.finish(maker.arranged(np.arange(10 * 5 * 8).reshape(10, 5, 8), *parts))
    move = graph.layers[-1]
    assert parts_of(graph, move, Split.ROWS, 2, 1) is None
    (whole, other) = parts_of(graph, move, Split.ONE, 2, 1)
    assert other is None
    assert [region.rows for region in part_of(graph, move, whole)[1]] == [range(6), range(4)]


# Choice: rows where weights are few, channels where they are many, one core where a layer is small.

POINT = Window((1, 1))
CONFIG = dataclasses.replace(PRESETS["ecp5-85k"], cluster=ClusterConfig(2))


def chosen(graph: Graph, config: Config = CONFIG) -> list[Split]:
    network = rewritten(graph, config)
    executed = run(network, OPERATIONS)
    estimate = Estimate(network, executed)
    (parts, *_) = choose_parts(network, executed)
    splits = [
        next(split for split in Split if estimate.parts(index, split) == of_layer)
        for index, of_layer in enumerate(parts)
    ]
    # Nothing is chosen that promises less than one core.
    assert estimate.cycles(splits) <= estimate.cycles([Split.ONE] * len(splits))
    return splits


def test_maps_are_split_into_rows() -> None:
    maker = GraphMaker((32, 32, 16))
    hidden = maker.convolution("x", 16, SAME)
    assert chosen(maker.finish(maker.convolution(hidden, 16, SAME))) == [Split.ROWS, Split.ROWS]


def test_channels_are_split_where_every_core_would_load_the_same_weights() -> None:
    maker = GraphMaker((4, 4, 1024))
    hidden = maker.convolution("x", 1024, POINT)
    assert chosen(maker.finish(maker.convolution(hidden, 1024, POINT))) == [Split.CHANNELS, Split.CHANNELS]


def test_a_small_layer_stays_on_one_core() -> None:
    maker = GraphMaker((4, 4, 8))
    hidden = maker.convolution("x", 8, SAME)
    assert chosen(maker.finish(maker.convolution(hidden, 8, SAME))) == [Split.ONE, Split.ONE]


def test_an_uneven_map_is_split_into_channels() -> None:
    """Three rows are two and one; the channels are halves."""
    maker = GraphMaker((3, 3, 64))
    hidden = maker.convolution("x", 128, SAME)
    assert chosen(maker.finish(maker.convolution(hidden, 128, SAME))) == [Split.CHANNELS, Split.CHANNELS]


# Meetings: what would wait for ever, or be read too early, is found.

CORES = 2


def spread() -> tuple[Plan, ...]:
    """Two convolutions, the rows of each on two cores: each gives the other a row of the tensor between them."""
    maker = GraphMaker((8, 8, 16))
    graph = maker.finish(maker.convolution(maker.convolution("x", 16, SAME), 16, SAME))
    network = rewritten(graph, CONFIG)
    parts = [parts_of(network.graph, layer, Split.ROWS, CORES, 8) for layer in network.graph.layers]
    return Candidate(network, is_permuted=False, parts=parts, way=0, is_wide=True).planned().plans


def test_halo_rows_are_stored_then_met_then_loaded() -> None:
    for plan in spread():
        commands = plan.queue(Queue.DMA)
        opcodes = [command.opcode for command in commands if command.opcode is not Opcode.FILL]
        assert opcodes.count(Opcode.BARRIER) == 1
        met = opcodes.index(Opcode.BARRIER)
        assert (opcodes[met - 1], opcodes[met + 1]) == (Opcode.STORE, Opcode.LOAD)
        stored = next(command for command in commands if command.opcode is Opcode.STORE)
        # One row of the four that the core has computed, and nothing is copied in its memory.
        assert stored.fields["rows"] * stored.fields["row_bytes"] == 8 * 16
        assert len([command for command in plan.commands if command.opcode is Opcode.COMPUTE]) >= 2


def without(plan: Plan, opcode: Opcode) -> Plan:
    left = tuple(command for command in plan.commands if command.opcode is not opcode)
    return dataclasses.replace(plan, commands=left)


def swap_around_barrier(plan: Plan, step: int) -> Plan:
    """Put the barrier before the STORE, or behind the LOAD, beside it."""
    moved = [index for index, command in enumerate(plan.commands) if command.opcode is Opcode.BARRIER]
    wanted = Opcode.STORE if step < 0 else Opcode.LOAD
    other = moved[0] + step
    while plan.commands[other].opcode is not wanted:
        other += step
    commands = [*plan.commands]
    commands[moved[0]], commands[other] = commands[other], commands[moved[0]]
    return dataclasses.replace(plan, commands=tuple(commands))


def other_group(plan: Plan) -> Plan:
    commands = (
        command.with_fields(group=1) if command.opcode is Opcode.BARRIER else command for command in plan.commands
    )
    return dataclasses.replace(plan, commands=tuple(commands))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda plan: without(plan, Opcode.BARRIER), "deadlock"),
        (lambda plan: without(plan, Opcode.LOAD), "deadlock|tokens left"),
        (other_group, "deadlock"),
        (lambda plan: swap_around_barrier(plan, -1), "before barrier"),
        (lambda plan: swap_around_barrier(plan, 1), "before barrier"),
    ],
    ids=["no barrier", "no load", "another group", "store behind the barrier", "load before the barrier"],
)
@pytest.mark.parametrize("core", range(CORES))
def test_what_is_wrong_is_found(damage: Callable[[Plan], Plan], message: str, core: int) -> None:
    plans = [*spread()]
    check_synchronisation(plans)
    plans[core] = damage(plans[core])
    with pytest.raises(AssertionError, match=message):
        check_synchronisation(plans)


def test_the_next_job_leaves_a_store_time_if_others_wait_for_it() -> None:
    """A window on even rows needs no row of the core above: that core gives, and need not wait itself."""
    maker = GraphMaker((16, 16, 16))
    first = maker.convolution("x", 16, SAME)
    down = Window((3, 3), (2, 2), pads=(0, 0, 1, 1))
    graph = maker.finish(maker.convolution(first, 16, down))
    network = rewritten(graph, CONFIG)
    parts = [parts_of(network.graph, layer, Split.ROWS, CORES, 8) for layer in network.graph.layers]
    _, lower = Candidate(network, is_permuted=False, parts=parts, way=0, is_wide=True).planned().plans
    (following,) = [command for command in lower.commands if command.follows is not None]
    assert (following.layer, following.follows.opcode) == (1, Opcode.STORE)
    dma = lower.queue(Queue.DMA)
    assert dma[following.waits_for].fields is following.follows.fields
    loads = [command for command in dma if command.fields.get("memory") == LocalMemory.FEATURE]
    assert all(command.layer == 0 for command in loads)
