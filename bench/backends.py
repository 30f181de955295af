"""Measure images a second with each back-end of a session, head and tail on the host included, and with ONNX Runtime.

    .venv/bin/python bench/backends.py [--config NAME] [--backends NAME ...] [MODEL ...]
    taskset -c 0 .venv/bin/python bench/backends.py --backends golden [MODEL ...]

Each is measured several times, in turns: on a machine that is shared, the readings show by how much they scatter. On
one processor core, where nothing waits for another process, seconds are those of the processor, which other jobs do not
lengthen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
from loaded import SEED, arguments

from lutterfly.golden.presets import PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.backend import BACKENDS
from lutterfly.host.backend.golden_functions import processor_cores
from lutterfly.host.model.executed import Prepared
from lutterfly.host.model.model import Model
from lutterfly.host.model.runtime import open_with
from lutterfly.host.session.loading import load
from lutterfly.host.session.verify import random_feeds

REFERENCE = "ONNX Runtime"

Sample = dict[str, np.ndarray]


def images_per_second(run: Callable[[int], object], least_seconds: float) -> float:
    """In the first run that takes so long; each has twice the images, or more, of the one before."""
    clock = time.process_time if processor_cores() == 1 else time.perf_counter

    def seconds_of(count: int) -> float:
        began = clock()
        run(count)
        return clock() - began

    count = 1
    while (seconds := seconds_of(count)) < least_seconds:
        count = math.ceil(count * min(16, max(2, 1.5 * least_seconds / max(seconds, 1e-9))))
    return count / seconds


def of_session(session: InferenceSession, sample: Sample) -> Callable[[int], object]:
    """Runs so many samples."""
    session.backend.prepare()
    return lambda count: session.run_samples(
        {name: np.broadcast_to(array, (count, *array.shape[1:])) for name, array in sample.items()}
    )


def of_reference(model: Model, sample: Sample) -> Callable[[int], object]:
    """Runs so many samples, one by one, as the reference does."""
    prepared = Prepared(model)
    options = prepared.options()
    options.intra_op_num_threads = processor_cores()
    session = open_with(prepared.model.data, options)

    def run(count: int) -> None:
        for _ in range(count):
            session.run(None, sample)

    return run


def main() -> None:
    """Print a Markdown table with a line for each model."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=[*BACKENDS], help="by default all")
    parser.add_argument("--seconds", type=float, default=5.0, help="least time for each reading (default: 5)")
    parser.add_argument("--readings", type=int, default=2, help="of each model and back-end (default: 2)")
    options = parser.parse_args()
    print(f"{processor_cores()} processor cores\n")
    names = [*options.backends, REFERENCE]
    print(f"| network ({options.config}), images a second | {' | '.join(names)} | {names[-2]} / {REFERENCE} |")
    print("|" + "---|" * (len(names) + 2))
    for path in options.models:
        loaded = load(path, PRESETS[options.config])
        sessions = {name: InferenceSession(loaded, options.config, backend=name) for name in options.backends}
        sample = random_feeds([*sessions.values()][-1], loaded.graph, np.random.default_rng(SEED))
        runs = {name: of_session(session, sample) for name, session in sessions.items()}
        runs[REFERENCE] = of_reference(loaded.model, sample)
        readings = [
            {name: images_per_second(run, options.seconds) for name, run in runs.items()}
            for _ in range(options.readings)
        ]
        shown = [", ".join(f"{reading[name]:,.3g}" for reading in readings) for name in names]
        times = ", ".join(f"{reading[names[-2]] / reading[REFERENCE]:.2f}" for reading in readings)
        print(f"| {path.stem} | {' | '.join(shown)} | {times} |", flush=True)


if __name__ == "__main__":
    main()
