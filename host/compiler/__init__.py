"""The compiler: from a quantised graph to a program for one configuration, in ordered named passes for each core."""

from __future__ import annotations

from ...golden.config import Config
from ...golden.presets import PRESETS
from ...golden.program.program import Program
from ..graph import Graph
from ..model.model import Model
from ..program import SpreadBy
from .emit import OTHER_CONFIG, check_program, check_room, emit
from .lower.fast_pointwise import check_pattern
from .lower.operations import engines_of
from .network import CompileError
from .passes import PASSES, Pass
from .plan import Plan, Spread
from .rewrite.rewrites import batched
from .search import plan_graph, spread_graph

#: The interface of the compiler: the rest of the host imports nothing else of it.
__all__ = [
    "OTHER_CONFIG",
    "PASSES",
    "CompileError",
    "Pass",
    "Spread",
    "batched",
    "check_pattern",
    "compile_graph",
    "compile_model",
    "encode",
    "engines_of",
    "plan_graph",
    "spread_graph",
]


def compile_model(
    model: bytes | Model,
    config: Config,
    name: str = "model",
    *,
    batch: int = 1,
    spread_by: SpreadBy = SpreadBy.SAMPLE,
) -> Program:
    """Compile an ONNX file.

    Parameters
    ----------
    model : bytes or Model
        The contents of the file, or the parsed model.
    config : Config
        The accelerator that the program is for.
    name : str
        Name of the model, for messages.
    batch : int
        Samples of an inference, or of each core if each has samples of its own; see :func:`.rewrites.batched`.
    spread_by : SpreadBy
        The quantity that is divided among cores, if there are several.

    Returns
    -------
    Program

    Raises
    ------
    ValueError
        If the file is not a quantised ONNX model, holds an operator that is not supported, or does not fit the
        configuration. The message names the place and the remedy.
    """
    # ONNX Runtime takes a second to import, and graphs are compiled without it.
    from ..frontend import import_model  # noqa: PLC0415

    return compile_graph(batched(import_model(model, name), batch), config, spread_by=spread_by)


def compile_graph(
    graph: Graph, config: Config, *, spread_by: SpreadBy = SpreadBy.SAMPLE, permute: bool = True
) -> Program:
    """Compile a quantised graph, see :func:`compile_model`; for ``permute`` see :func:`plan_graph`.

    Raises
    ------
    CompileError
        If the graph does not fit the configuration.
    """
    return _encode(spread_graph(graph, config, spread_by, permute=permute))


def encode(plan: Plan) -> Program:
    """Return the program of a finished plan for an accelerator of one core."""
    return _encode(Spread.of_one(plan))


def _encode(spread: Spread) -> Program:
    preset = next((name for name, known in PRESETS.items() if known == spread.config), "custom")
    program = emit(spread, preset)
    check_program(spread, program)
    check_room(spread, program)
    return program
