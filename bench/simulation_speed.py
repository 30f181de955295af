"""Measure how fast inference is simulated: cycles a second, and seconds an inference.

    .venv/bin/python bench/simulation_speed.py [--config NAME] [MODEL ...]

The processor's seconds leave out what other programs took of a busy machine.
"""

from __future__ import annotations

import time

import numpy as np
from loaded import SEED, Loaded, arguments, load


def measure(network: Loaded, least_seconds: float) -> tuple[int, int, float, float]:
    """Infer for at least ``least_seconds``; returns inferences, their cycles, their seconds, and the processor's."""
    generator = np.random.default_rng(SEED)
    inputs = network.inputs(generator)
    # The first run reads the program into caches, the simulator's and the processor's.
    network.driver.infer(inputs)
    first_cycle, begin, busy = network.transport.simulator.cycle, time.perf_counter(), time.process_time()
    runs = 0
    while (elapsed := time.perf_counter() - begin) < least_seconds:
        network.driver.infer(inputs)
        runs += 1
    return runs, network.transport.simulator.cycle - first_cycle, elapsed, time.process_time() - busy


def main() -> None:
    """Print a Markdown table with a line for each model."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="least time for each model (default: 5)")
    options = parser.parse_args()
    print(
        f"| network ({options.config}) | inferences | cycles each | million cycles a second "
        "| million cycles a processor second | seconds an inference |"
    )
    print("|---|---|---|---|---|---|")
    for network in load(options.models, options.config):
        runs, cycles, seconds, busy = measure(network, options.seconds)
        print(
            f"| {network.name} | {runs} | {cycles // runs:,} | {cycles / seconds / 1e6:.2f} "
            f"| {cycles / busy / 1e6:.2f} | {seconds / runs:.4f} |"
        )


if __name__ == "__main__":
    main()
