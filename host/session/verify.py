"""Verification: the same inputs through ONNX Runtime, golden functions, golden machine and the simulated core."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...golden.config import Config
from ...golden.elements import BINARY_BITS, CODE_BITS
from ...golden.machine import machine
from ...golden.program.program import Program
from ...golden.program.tensors import SpilledTensor, WrittenTensor
from ..compiler import batched
from ..files.progress import Progress, silent
from ..frontend import import_model
from ..graph import Graph
from ..model import runtime
from ..program import SpreadBy
from ..simulation.settings import MemorySettings
from ..simulation.verilator_transport import VerilatorTransport
from .compare import Comparison
from .loading import Given, load_with_graph
from .random_inputs import random_feeds
from .session import InferenceSession
from .verification import Verification

#: What elements are called by their bits.
_KINDS = {CODE_BITS: "int8", BINARY_BITS: "binary"}


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
    progress: Progress = silent,
) -> Verification:
    """Compare everything on random inputs.

    Parameters
    ----------
    path_or_bytes : str, Path, bytes, Model, Program or Loaded
        An ONNX file, or a program file (which contains one), or the contents of one.
    config : Config
    samples : int
        Random inputs.
    seed : int
        Of the inputs.
    batch : int or None
        As :func:`.loading.load` takes it, like ``spread_by``. What is missing in the last inference is its last input.
    spread_by : SpreadBy or None
    name : str
        What messages call what is given without a path.
    settings : MemorySettings or None
        The simulated memory; cycles are compared on the ideal one, which is the default.
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
    loaded, compiled = load_with_graph(path_or_bytes, config, name=name, batch=batch, spread_by=spread_by)
    program = loaded.program
    graph = compiled or batched(import_model(loaded.model, loaded.name), program.batch // program.shares)
    _check_tensors(program, graph, loaded.name)
    transport = VerilatorTransport(config, settings=settings, progress=progress)
    session = InferenceSession(loaded, config, transport)
    found = Verification(loaded, samples, reference=runtime.probe() or "")
    run = Comparison(graph, program, config, session, transport, found)
    rng = np.random.default_rng(seed)
    # The first inference also fetches the program: cycles are those of a later one.
    session.run(None, random_feeds(session, graph, rng))
    interleavings = machine.interleavings(config.cores)
    for start in range(0, samples, program.batch):
        progress("comparing samples", start, samples)
        feeds = random_feeds(session, graph, rng, min(program.batch, samples - start))
        run.compare(feeds, interleaving=next(interleavings))
    if settings in (None, MemorySettings()):
        run.found.layers = run.measure()
    return run.found


def _check_tensors(program: Program, graph: Graph, name: str) -> None:
    """What a program says of its tensors must be what its model has."""
    ports = [*zip(program.inputs, graph.inputs, strict=False), *zip(program.outputs, graph.outputs, strict=False)]
    places = [(known, port.shape, port.bits) for port, known in ports]
    parts = [tensor for core in program.cores for tensor in (*core.written, *core.spilled)]
    places += [(part, _extent([other for other in parts if other.name == part]), bits) for part, bits in _kinds(parts)]
    for tensor, shape, bits in places:
        known = graph.tensors.get(tensor)
        if known is None:
            raise ValueError(f"{name}: {tensor} must be in the model, and is not; the file is damaged: compile again")
        if (known.shape, known.bits) != (shape, bits):
            wanted, found = (
                f"{_KINDS[width]}{list(size)}" for size, width in ((known.shape, known.bits), (shape, bits))
            )
            raise ValueError(f"{name}: {tensor} must be {wanted}, not {found}; the file is damaged: compile again")


def _kinds(parts: Sequence[WrittenTensor | SpilledTensor]) -> list[tuple[str, int]]:
    """Names and bits of the tensors that these are parts of."""
    return list(dict.fromkeys((part.name, part.bits) for part in parts))


def _extent(parts: Sequence[WrittenTensor | SpilledTensor]) -> tuple[int, int, int]:
    """The shape of a tensor that has such parts."""
    height = max(part.row + part.shape[0] for part in parts)
    channels = max(part.channel + part.shape[2] for part in parts)
    return height, max(part.shape[1] for part in parts), channels
