"""Print the figures of docs/results.md: cycles of each network and of each of its layers, measured and predicted.

    .venv/bin/python bench/cycles.py [--config NAME] [--layers] [MODEL ...]

A layer's cycles run from the last issue of the layer before (the first layer's from the start) to its own last issue.
Utilisation is multiply-accumulates over what all multipliers could do in the measured cycles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from loaded import SEED, Loaded, arguments, load

from lutterfly.host.simulation.simulator import EventKind


@dataclass(frozen=True)
class MeasuredCycles:
    """One inference: cycles from start to interrupt, and of each layer."""

    cycles: int
    layers: list[int]


def measure(network: Loaded) -> MeasuredCycles:
    """Run twice, with the program resident the second time, and measure that run."""
    inputs = network.inputs(np.random.default_rng(SEED))
    network.driver.infer(inputs)
    simulator = network.transport.simulator
    simulator.clear_events()
    network.driver.begin(inputs)
    network.transport.wait_for_interrupt(100 * network.program.predicted_cycles + 1_000_000)
    interrupt = simulator.cycle
    network.driver.finish()
    cycles = network.driver.counters()["cycles"]
    events = simulator.events().astype(np.int64)
    last_issues = events[events[:, 1] == EventKind.ISSUE_LAST, 0]
    ends = [last_issues[max(layer.commands)] for layer in network.program.layers]
    return MeasuredCycles(cycles, np.diff([interrupt - cycles, *ends]).tolist())


def utilisation(multiplier_cycles: float, cycles: int, multipliers: int) -> str:
    """Share of the multipliers' work that was needed, in percent."""
    return f"{100 * multiplier_cycles / (cycles * multipliers):.1f} %"


def difference(predicted: int, measured: int) -> str:
    """The error of a prediction, in cycles and percent."""
    return f"{predicted - measured:+d} ({100 * (predicted - measured) / measured:+.1f} %)"


def main() -> None:
    """Print a Markdown table of the networks, and with ``--layers`` one of the layers of each."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--layers", action="store_true", help="a table of the layers of each network as well")
    options = parser.parse_args()
    rows = [(network, measure(network)) for network in load(options.models, options.config)]
    print(f"| network ({options.config}) | multiply-accumulates | cycles | predicted | off by | utilisation |")
    print("|---|---|---|---|---|---|")
    for network, measured in rows:
        predicted = network.program.predicted_cycles
        print(
            f"| {network.name} | {network.macs:,} | {measured.cycles:,} | {predicted:,} "
            f"| {difference(predicted, measured.cycles)} "
            f"| {utilisation(network.multiplier_cycles, measured.cycles, network.multipliers)} |"
        )
    if not options.layers:
        return
    for network, measured in rows:
        print(f"\n| {network.name}: layer | kind | cycles | predicted | off by | bound | utilisation | fold |")
        print("|---|---|---|---|---|---|---|---|")
        for layer, cycles in zip(network.program.layers, measured.layers, strict=True):
            used = utilisation(layer.multiplier_cycles, cycles, network.multipliers) if layer.macs else ""
            print(
                f"| {layer.name} | {layer.kind} | {cycles:,} | {layer.cycles:,} | {difference(layer.cycles, cycles)} "
                f"| {layer.bound} | {used} | {layer.fold} |"
            )


if __name__ == "__main__":
    main()
