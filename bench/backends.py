"""Measure images a second with each back-end of a session, head and tail on the host included.

    .venv/bin/python bench/backends.py [--config NAME] [MODEL ...]

Each is measured several times, in turns: on a machine that is shared, the readings show by how much they scatter.
"""

from __future__ import annotations

import math
import time

import numpy as np
from loaded import SEED, arguments

from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.backend import BACKENDS
from lutterfly.host.backend.evaluating import processor_cores
from lutterfly.host.session.loading import load
from lutterfly.host.session.verify import random_feeds


def measure(session: InferenceSession, sample: dict[str, np.ndarray], least_seconds: float) -> float:
    """Images a second, in the first run that takes so long; each has twice the images, or more, of the one before."""

    def run(count: int) -> float:
        began = time.perf_counter()
        session.run_samples({name: np.broadcast_to(array, (count, *array.shape[1:])) for name, array in sample.items()})
        return time.perf_counter() - began

    session.backend.prepare()
    count = 1
    while (seconds := run(count)) < least_seconds:
        count = math.ceil(count * min(16, max(2, 1.5 * least_seconds / seconds)))
    return count / seconds


def main() -> None:
    """Print a Markdown table with a line for each model."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="least time for each reading (default: 5)")
    parser.add_argument("--readings", type=int, default=2, help="of each model and back-end (default: 2)")
    options = parser.parse_args()
    print(f"{processor_cores()} processor cores\n")
    print(f"| network ({options.config}), images a second | {' | '.join(BACKENDS)} | times as fast |")
    print("|---|---|---|---|")
    for path in options.models:
        loaded = load(path, PRESETS[options.config])
        sessions = {name: InferenceSession(loaded, options.config, backend=name) for name in BACKENDS}
        sample = random_feeds(sessions["golden"], loaded.graph, np.random.default_rng(SEED))
        readings = [
            {name: measure(session, sample, options.seconds) for name, session in sessions.items()}
            for _ in range(options.readings)
        ]
        shown = [", ".join(f"{reading[name]:,.3g}" for reading in readings) for name in BACKENDS]
        times = ", ".join(f"{reading['golden'] / reading['simulator']:.3g}" for reading in readings)
        print(f"| {path.stem} | {' | '.join(shown)} | {times} |", flush=True)


if __name__ == "__main__":
    main()
