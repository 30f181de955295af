"""Measure how fast inference is simulated: cycles a second, and seconds an inference.

    .venv/bin/python bench/simulation_speed.py [--config NAME] [MODEL ...]
"""
from __future__ import annotations

import time

import numpy as np

from networks import SEED, Loaded, arguments, load


def measure(network: Loaded, least_seconds: float) -> tuple[int, int, float]:
    """Infer for at least ``least_seconds``; returns inferences, their simulated cycles, and the seconds they took."""
    generator = np.random.default_rng(SEED)
    inputs = network.inputs(generator)
    # The first run reads the program into caches, the simulator's and the processor's.
    network.driver.infer(inputs)
    runs, first_cycle, begin = 0, network.transport.simulator.cycle, time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < least_seconds:
        network.driver.infer(inputs)
        runs += 1
    return runs, network.transport.simulator.cycle - first_cycle, elapsed


def main() -> None:
    """Print a Markdown table with a line for each model."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="least time for each model (default: 5)")
    options = parser.parse_args()
    print(f"| network ({options.config}) | inferences | cycles each | million cycles a second | seconds an inference |")
    print("|---|---|---|---|---|")
    for network in load(options.models, options.config):
        runs, cycles, seconds = measure(network, options.seconds)
        print(f"| {network.name} | {runs} | {cycles // runs:,} | {cycles / seconds / 1e6:.2f} | {seconds / runs:.4f} |")


if __name__ == "__main__":
    main()
