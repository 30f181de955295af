"""Run a quantised graph on the simulated core, and measure it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lutterfly.golden.config import Config
from lutterfly.golden.program.program import Program
from lutterfly.host.compiler import compile_graph
from lutterfly.host.driver.driver import Driver
from lutterfly.host.graph import Graph
from lutterfly.host.graph.evaluate import evaluate, to_onnx
from lutterfly.host.simulation.simulator import EventKind, MemorySettings, VerilatorTransport


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
