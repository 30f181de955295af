"""The compiler: programs give the reference's bytes in every order, and refusals say what to do."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from cocotb_tests.support.oracles.execution import differing_bytes
from cocotb_tests.support.quantised.graphs import GraphMaker, random_graph
from lutterfly.golden.engines import MAC
from lutterfly.golden.machine.flights import MachineError
from lutterfly.golden.machine.machine import ORDERS
from lutterfly.golden.memories import LocalMemory
from lutterfly.golden.presets import PRESETS
from lutterfly.golden.program.program import Program
from lutterfly.golden.units import Queue
from lutterfly.host.compiler import CompileError, compile_graph, encode, plan_graph
from lutterfly.host.compiler.operation import TimedCommand
from lutterfly.host.compiler.plan import Plan
from lutterfly.host.graph import Graph, Window

SAME = Window((3, 3), pads=(1, 1, 1, 1))
HALF = Window((3, 3), (2, 2), pads=(0, 0, 1, 1))


def resnet_like() -> Graph:
    """The convolutions of ResNet-8, one after the other."""
    maker = GraphMaker((32, 32, 3))
    name = "x"
    for channels, window in ((16, SAME), (16, SAME), (16, SAME), (32, HALF), (32, SAME), (64, HALF), (64, SAME)):
        name = maker.convolution(name, channels, window, table=channels == 64)
    name = maker.max_pool(name, Window((8, 8)))
    return maker.finish(maker.fully_connected(name, 10))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_give_the_reference_bytes(preset: str, seed: int) -> None:
    graph, config = random_graph(seed), PRESETS[preset]
    program = compile_graph(graph, config)
    for order in ORDERS:
        assert differing_bytes(graph, program, config, order=order, seed=seed) == 0


@pytest.mark.regress
@pytest.mark.parametrize("seed", range(24, 400))
def test_many_random_graphs_give_the_reference_bytes(seed: int) -> None:
    graph = random_graph(seed)
    for preset in PRESETS:
        program = compile_graph(graph, PRESETS[preset])
        for order in ORDERS:
            assert differing_bytes(graph, program, PRESETS[preset], order=order, seed=seed) == 0


def calls_of(work: Callable[[], object]) -> int:
    """Functions of Python that it calls: the same on a slow machine."""
    calls, before = 0, sys.getprofile()

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_a_network_as_large_as_resnet_takes_little_work() -> None:
    """About 90,000 calls, in a tenth of a second: a step for each of its cycles, in whatever pass, would be as many."""
    graph, config = resnet_like(), PRESETS["ecp5-85k"]
    assert calls_of(lambda: compile_graph(graph, config)) < 130_000


def test_a_network_as_large_as_resnet_is_right() -> None:
    graph, config = resnet_like(), PRESETS["ecp5-85k"]
    program = compile_graph(graph, config)
    assert sum(layer.macs for layer in program.layers) > 12_000_000
    assert differing_bytes(graph, program, config, order="random") == 0
    assert Program.from_bytes(program.to_bytes()) == program


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "window",
    [
        Window((3, 3), pads=(1, 1, 1, 1)),
        Window((3, 3), (2, 2), pads=(0, 0, 1, 1)),
        Window((5, 4), (3, 2), (1, 2), (3, 0, 1, 2)),
        Window((3, 2), (1, 1), (2, 1), (2, 1, 0, 1)),
        Window((7, 7), (2, 2), pads=(3, 3, 3, 3)),
        Window((2, 9), (1, 1), pads=(0, 3, 1, 3)),
        Window((1, 1), (3, 3)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_every_fold_of_the_input_is_exact(monkeypatch: pytest.MonkeyPatch, window: Window, channels: int) -> None:
    maker = GraphMaker((9, 8, channels), zero_point=-7)
    graph, config = maker.finish(maker.convolution("x", 9, window)), PRESETS["ecp5-85k"]
    for rows in range(1, window.kernel[0] + 1):
        monkeypatch.setattr(
            "lutterfly.host.compiler.layout.borders.load_estimate",
            lambda storage, *_, rows=rows: 0 if (storage.fold.rows if storage.fold else 1) == rows else 1 << 30,
        )
        plan = plan_graph(graph, config)
        fold = plan.storages["x"].fold
        assert (fold.rows if fold else 1) == rows
        program = encode(plan)
        for order in ORDERS:
            assert differing_bytes(graph, program, config, order=order) == 0


def test_a_first_layer_that_streams_is_exact() -> None:
    maker = GraphMaker((40, 40, 3), zero_point=5)
    graph, config = maker.finish(maker.convolution("x", 20, SAME)), PRESETS["ecp5-85k"]
    plan = plan_graph(graph, config)
    assert len(plan.jobs) > 1
    assert sum(len(job.rows) for job in plan.jobs) == 40
    for order in ORDERS:
        assert differing_bytes(graph, encode(plan), config, order=order) == 0


def test_no_layer_waits_for_a_border_that_could_be_filled_before() -> None:
    program = compile_graph(resnet_like(), PRESETS["ecp5-85k"])
    for layer in program.layers[1:]:
        assert layer.cycles <= layer.array_cycles + 50, layer


def changed_commands(plan: Plan, changed: Mapping[TimedCommand, Mapping[str, object]]) -> Plan:
    """The plan with other values in some of its commands."""
    commands = [dataclasses.replace(command, **changed.get(command, {})) for command in plan.commands]
    return Plan.of_commands(plan, commands)


@pytest.mark.regress
@pytest.mark.parametrize("queue", Queue)
def test_every_wait_and_every_after_is_needed(queue: Queue) -> None:
    """Leave out one of them, and the orders no longer agree: what the machine poisons is what the compiler orders."""
    maker = GraphMaker((16, 16, 4), zero_point=9)
    name = maker.convolution("x", 16, SAME)
    name = maker.convolution(maker.max_pool(name, Window((2, 2), (2, 2))), 16, SAME)
    graph, config = maker.finish(maker.convolution(maker.convolution(name, 24, SAME), 8, SAME)), PRESETS["tiny"]
    broken = 0
    for index, command in enumerate(plan_graph(graph, config).queue(queue)):
        flaws = [
            name for name, there in (("after", command.after), ("waits_for", command.waits_for is not None)) if there
        ]
        for flaw in flaws:
            plan = plan_graph(graph, config)
            victim = plan.queue(queue)[index]
            if flaw == "after":
                changed = {victim: {"after": False}}
            else:
                other = plan.queue(queue.peer)[victim.waits_for]
                changed = {victim: {"waits_for": None}, other: {"signal": other.signal - 1}}
            program = encode(changed_commands(plan, changed))
            wrong = [differing_bytes(graph, program, config, order=order) for order in ORDERS]
            assert any(wrong), f"{queue} command {index} does not need {flaw}"
            broken += 1
    assert broken > 1


def test_a_token_too_few_or_too_many_is_found() -> None:
    graph, config = random_graph(3), PRESETS["ecp5-85k"]
    for change in (-1, 1):
        plan = plan_graph(graph, config)
        victim = next(command for command in plan.queue(Queue.DMA) if command.signal)
        program = encode(changed_commands(plan, {victim: {"signal": victim.signal + change}}))
        with pytest.raises(MachineError, match="WATCHDOG" if change < 0 else "TOKENS_LEFT"):
            differing_bytes(graph, program, config, order="random")


def test_an_output_that_is_an_input_is_copied() -> None:
    maker = GraphMaker((3, 5, 7))
    graph = maker.finish("x", maker.pointwise("x"))
    assert differing_bytes(graph, compile_graph(graph, PRESETS["tiny"]), PRESETS["tiny"], order="random") == 0


def test_several_consumers_share_the_largest_border() -> None:
    maker = GraphMaker((8, 8, 4), zero_point=-20)
    trunk = maker.convolution("x", 6, SAME, zero_point=-128)
    outputs = (
        maker.convolution(trunk, 5, Window((5, 3), pads=(2, 0, 2, 1))),
        maker.max_pool(trunk, Window((3, 3), (2, 2), pads=(0, 1, 1, 1))),
        maker.fully_connected(trunk, 4),
    )
    graph = maker.finish(*outputs)
    for order in ORDERS:
        assert differing_bytes(graph, compile_graph(graph, PRESETS["tiny"]), PRESETS["tiny"], order=order) == 0


def test_equal_tables_are_stored_once() -> None:
    maker = GraphMaker((4, 4, 4))
    table = maker.table()
    maker.table = lambda: table
    name = "x"
    for _ in range(6):
        name = maker.pointwise(name)
    graph, config = maker.finish(name), PRESETS["tiny"]
    plan = plan_graph(graph, config)
    assert len(plan.images[LocalMemory.TABLE]) == 256
    program = encode(plan)
    assert (program.outline.transfer_functions, program.cores[0].outline.transfer_tables) == (6, 1)
    assert differing_bytes(graph, encode(plan), config, order="random") == 0


@pytest.mark.regress
def test_what_cannot_be_computed_in_parts_is_refused_by_name() -> None:
    maker = GraphMaker((64, 64, 4))
    graph = maker.finish(maker.fully_connected("x", 4))
    with pytest.raises(
        CompileError,
        match=r"^conv_t0: one pixel of its output and what it is computed from need 16388 bytes of feature memory, the "
        r"configuration has 8192; choose a larger --config$",
    ):
        compile_graph(graph, PRESETS["tiny"])


def test_a_tile_of_weights_larger_than_their_memory_is_refused_by_name() -> None:
    memory = dataclasses.replace(PRESETS["tiny"].memory, weight_bytes=4096)
    maker = GraphMaker((1, 1, 2400))
    with pytest.raises(
        CompileError,
        match=r"^conv_t0: one tile of its output needs 4800 bytes of weight memory, the configuration has 4096; choose",
    ):
        compile_graph(maker.finish(maker.fully_connected("x", 5)), dataclasses.replace(PRESETS["tiny"], memory=memory))


def test_more_steps_than_the_lists_hold_are_refused() -> None:
    maker = GraphMaker((1, 1, 4100))
    graph = maker.finish(maker.fully_connected("x", 1))
    graph.layers[0].weights[graph.layers[0].weights == 0] = 1
    with pytest.raises(
        CompileError,
        match=r"^conv_t0: it needs 4100 bytes of list memory, the configuration has 4096; choose a --config with "
        "more list_entries$",
    ):
        compile_graph(graph, PRESETS["tiny"])


def test_with_more_entries_they_are_accepted() -> None:
    memory = dataclasses.replace(PRESETS["tiny"].memory, list_entries=2048)
    maker = GraphMaker((1, 1, 4100))
    graph = maker.finish(maker.fully_connected("x", 1))
    compile_graph(graph, dataclasses.replace(PRESETS["tiny"], memory=memory))


def test_a_scale_that_is_no_number_is_refused_by_name() -> None:
    maker = GraphMaker((4, 4, 4))
    graph = maker.finish(maker.convolution("x", 4, SAME))
    graph.layers[0].multiplier[2] = np.inf
    with pytest.raises(CompileError, match=r"^conv_t0: multiplier must be finite and not negative, not inf$"):
        compile_graph(graph, PRESETS["tiny"])


def test_a_window_of_a_depthwise_row_reads_only_what_the_one_before_did_not() -> None:
    maker = GraphMaker((16, 16, 16))
    plan = plan_graph(maker.finish(maker.depthwise("x", SAME)), PRESETS["ecp5-85k"])
    (command,) = plan.queue(Queue.COMPUTE)
    assert plan.predictions[0].array_cycles == 16 * (3 * 3 + 15 * 3)
    assert (command.fields["rows"], command.fields["steps"], command.fields["skip"]) == (3, 9, 6)


@pytest.mark.parametrize(("kernel", "along"), [((1, 7), 1), ((7, 1), 0), ((7, 3), 1)])
def test_a_depthwise_kernel_runs_along_its_longer_side(kernel: tuple[int, int], along: int) -> None:
    maker = GraphMaker((9, 9, 16))
    plan = plan_graph(maker.finish(maker.depthwise("x", Window(kernel))), PRESETS["ecp5-85k"])
    (command,) = plan.queue(Queue.COMPUTE)
    inner = plan.graph.tensors[plan.graph.layers[0].output].shape[along]
    assert command.fields["inner"] == inner
    assert plan.operations[0].stream.along == along


def test_a_depthwise_kernel_beyond_the_chain_runs_as_groups() -> None:
    maker, config = GraphMaker((13, 13, 3)), PRESETS["tiny"]
    graph = maker.finish(maker.depthwise("x", Window((9, 9))))
    plan = plan_graph(graph, config)
    assert plan.queue(Queue.COMPUTE)[0].fields["engine"] == MAC
    assert differing_bytes(graph, encode(plan), config, order="random") == 0


def test_equal_weights_of_a_whole_map_are_one_word() -> None:
    maker = GraphMaker((8, 8, 32))
    plan = plan_graph(maker.finish(maker.global_average("x")), PRESETS["ecp5-85k"])
    assert len(plan.images[LocalMemory.WEIGHT]) == 2 * PRESETS["ecp5-85k"].weight_word_bytes
    assert plan.predictions[0].array_cycles == 2 * 64
