"""Runs programs for tests: on the golden machine with every tensor compared, and on the simulated core, measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cocotb_tests.support.quantised.evaluation import evaluate_float
from lutterfly.golden.config import Config
from lutterfly.golden.machine.images import new_arena, tensor_codes, tensor_image
from lutterfly.golden.machine.machine import ORDERS, Machine
from lutterfly.golden.program.program import Port, Program
from lutterfly.host.compiler import Plan, compile_graph, encode, plan_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.graph import Concat, Graph, Rearrange, Slice
from lutterfly.host.graph.evaluate import evaluate, to_onnx
from lutterfly.host.simulation.simulator import EventKind, MemorySettings, VerilatorTransport

#: Transfers as early as can be, and commands as early as can be: a wait that is missing shows in one of the two.
#: Generated networks are tried in all orders.
EXTREMES = ORDERS[:2]


def put_input(arena: np.ndarray, port: Port, codes: np.ndarray, share: int = 0) -> None:
    arena[port.addresses[share] :][: port.size_bytes] = tensor_image(codes, port.bits).reshape(-1)


def get_output(arena: np.ndarray, port: Port, share: int = 0) -> np.ndarray:
    return tensor_codes(arena[port.addresses[share] :][: port.size_bytes], port.shape, port.bits)


def differing_bytes(
    graph: Graph, program: Program, config: Config, *, order: str, turns: str = "core-0-first", seed: int = 0
) -> int:
    """Two inferences back to back; bytes of all written tensors and outputs that are not those of the reference."""
    machine, arena, rng = Machine(config, seed=seed), new_arena(program, config), np.random.default_rng(seed)
    machine.run_prologue(program, arena, order=order, turns=turns)
    wrong, shares = 0, range(program.shares)
    for _ in range(2):
        shapes = {name: graph.tensors[name].shape for name in graph.inputs}
        inputs = [
            {name: rng.integers(-128, 128, shape, dtype=np.int8) for name, shape in shapes.items()} for _ in shares
        ]
        for share in shares:
            for name, port in zip(graph.inputs, program.inputs, strict=True):
                put_input(arena, port, inputs[share][name], share)
        for share, written in enumerate(machine.run_body(program, arena, order=order, turns=turns)):
            expected = evaluate_float(graph, inputs[share])
            assert written.keys() <= expected.keys()
            assert {layer.output for layer in graph.layers} - written.keys() <= _hidden(graph)
            wrong += sum(np.count_nonzero(codes != expected[name]) for name, codes in written.items())
            wrong += sum(
                np.count_nonzero(get_output(arena, port, share) != expected[name])
                for name, port in zip(graph.outputs, program.outputs, strict=True)
            )
    return wrong


def exact_plan(graph: Graph, config: Config) -> Plan:
    """Compile a graph, and execute it in both extreme orders: no byte differs."""
    plan = plan_graph(graph, config)
    program = encode(plan)
    for order in EXTREMES:
        assert differing_bytes(graph, program, config, order=order) == 0
    return plan


def _hidden(graph: Graph) -> set[str]:
    """Tensors that may be in no memory, or that no ONNX tensor is: in front of a concatenation's table, channels of an
    input, or what is computed phase by phase."""
    looked_up = {
        name
        for layer in graph.layers
        if isinstance(layer, Concat)
        for name, table in zip(layer.inputs, layer.tables, strict=True)
        if table is not None
    }
    views = set(graph.inputs)
    for layer in graph.layers:
        if isinstance(layer, Slice) and layer.input in views:
            views.add(layer.output)
    phases = {layer.input for layer in graph.layers if type(layer) is Rearrange and layer.window.up != (1, 1)}
    unnamed = {name for name, tensor in graph.tensors.items() if not tensor.views}
    return looked_up | views | phases | unnamed


# Run a quantised graph on the simulated core, and measure it.


@dataclass(frozen=True)
class Measured:
    """One inference, the second of two, with the program resident.

    ``first`` and ``last`` are the cycles in which each COMPUTE command issued its first and its last step.
    """

    program: Program
    counters: dict[str, int]
    first: list[int]
    last: list[int]
    begin: int

    @property
    def layer_cycles(self) -> list[int]:
        """Of each layer, from the last issue of the one before to its own last issue."""
        ends = [self.last[layer.commands[-1]] for layer in self.program.layers]
        return [end - before for end, before in zip(ends, [self.begin, *ends], strict=False)]


def measure(graph: Graph, config: Config, *, seed: int = 0, settings: MemorySettings | None = None) -> Measured:
    """Two inferences back to back; asserts that both return the golden bytes."""
    program = compile_graph(graph, config)
    transport = VerilatorTransport(config, settings=settings)
    driver = Driver(transport, config)
    driver.load(program)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        codes = {name: rng.integers(-128, 128, graph.tensors[name].shape, dtype=np.int8) for name in graph.inputs}
        expected = evaluate(graph, codes)
        transport.simulator.clear_events()
        inputs = [to_onnx(graph.tensors[name].views[0], codes[name]) for name in graph.inputs]
        driver.begin(inputs)
        begin = transport.simulator.cycle
        outputs = driver.finish()
        for name, output in zip(graph.outputs, outputs, strict=True):
            np.testing.assert_array_equal(output, to_onnx(graph.tensors[name].views[0], expected[name]))
    events = [(int(cycle), EventKind(int(kind))) for cycle, kind in transport.simulator.events()]
    first, last = (
        [cycle for cycle, kind in events if kind is wanted] for wanted in (EventKind.ISSUE_FIRST, EventKind.ISSUE_LAST)
    )
    return Measured(program, driver.counters(), first, last, begin)
