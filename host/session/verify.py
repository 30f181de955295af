"""Verification: the same inputs through ONNX Runtime, golden functions, golden machine and the simulated core."""

from __future__ import annotations

import numpy as np

from ...golden.config import Config
from ...golden.machine import machine
from ..driver.transport import Transport
from ..files.terminal import Progress, silent
from ..graph import Graph
from ..model import runtime
from ..program import SpreadBy
from ..simulation.simulator import MemorySettings, VerilatorTransport
from .compare import Comparison, Verification, Watched, WatchedBoard, WatchedSimulator
from .loading import Given, load
from .session import InferenceSession

# Random inputs of a model.


def random_feeds(
    session: InferenceSession, graph: Graph, rng: np.random.Generator, samples: int = 1
) -> dict[str, np.ndarray]:
    """Yield random inputs: they cover every code of a quantised input, and the whole range of a float one."""
    feeds = {}
    for index, info in enumerate(session.get_inputs()):
        shape = (samples, *info.sample_shape)
        if info.dtype.kind in "iu":
            limits = np.iinfo(info.dtype)
            feeds[info.name] = rng.integers(limits.min, limits.max, shape, info.dtype, endpoint=True)
        else:
            tensor = graph.tensors[graph.inputs[min(index, len(graph.inputs) - 1)]]
            low, high = ((code - tensor.zero_point) * tensor.scale for code in (-128, 127))
            feeds[info.name] = rng.uniform(low, high, shape).astype(info.dtype)
    return feeds


def verify(
    path_or_bytes: Given,
    config: Config,
    samples: int = 8,
    seed: int = 0,
    *,
    batch: int | None = None,
    spread_by: SpreadBy | None = None,
    name: str = "model",
    settings: MemorySettings | None = None,
    transport: Transport | None = None,
    progress: Progress = silent,
) -> Verification:
    """Compare everything on random inputs.

    Parameters
    ----------
    path_or_bytes : str, Path, bytes, Model, Program or LoadedProgram
        An ONNX file, or a program file (which contains one), or the contents of one.
    config : Config
    samples : int
        Random inputs.
    seed : int
        Seed of the inputs.
    batch : int or None
        See :func:`.loading.load`, also for ``spread_by``. The last input is repeated in place of missing ones.
    spread_by : SpreadBy or None
    name : str
        The name in messages of a model or program without a path.
    settings : MemorySettings or None
        The simulated memory; cycles are compared on the ideal one, which is the default.
    transport : Transport or None
        A board, whose arena and outputs are compared; by default the simulated core, of which everything is compared.
    progress : callable

    Raises
    ------
    ValueError
        If the model or the program is refused.
    AcceleratorError
        If the simulated core stops.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    loaded = load(path_or_bytes, config, name=name, batch=batch, spread_by=spread_by)
    program, graph = loaded.program, loaded.graph
    watched: Watched = (
        WatchedBoard(program, config, transport)
        if transport is not None
        else WatchedSimulator(program, config, VerilatorTransport(config, settings=settings, progress=progress))
    )
    session = InferenceSession(loaded, config, watched.transport)
    found = Verification(loaded, samples, reference=runtime.probe() or "")
    run = Comparison(graph, program, config, session, watched, found)
    _compare_samples(run, samples, np.random.default_rng(seed), progress)
    if settings in (None, MemorySettings()):
        run.found.layers = watched.measure()
    return run.found


def _compare_samples(run: Comparison, samples: int, rng: np.random.Generator, progress: Progress) -> None:
    """Compare random inputs, a batch at a time."""
    session, batch = run.session, run.program.batch
    # The first inference also fetches the program, so cycles are those of a later one.
    session.run(None, random_feeds(session, run.graph, rng))
    interleavings = machine.interleavings(run.config.cores)
    for start in range(0, samples, batch):
        progress("comparing samples", start, samples)
        feeds = random_feeds(session, run.graph, rng, min(batch, samples - start))
        run.compare(feeds, interleaving=next(interleavings))
