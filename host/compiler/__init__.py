"""The compiler: from a quantised graph to a program for one configuration, in ordered named passes for each core."""

from __future__ import annotations

from ...golden.config import Config
from ...golden.presets import PRESETS
from ...golden.program.program import Program
from ..graph import Graph
from ..model.model import Model
from ..program import SpreadBy
from .clock.cycles import predict_together
from .cluster.by_layer import plan_by_layer
from .cluster.split import spread_by_sample
from .lower.fast_pointwise import check_pattern
from .lower.operations import engines_of
from .network import CompileError
from .outcome.emit import check_program, check_room, emit
from .passes import PASSES, Pass, run
from .plan import Plan, Spread
from .rewrite.permute import permuted
from .rewrite.rewrites import batched
from .width import fastest

#: All that the rest of the host knows of the compiler.
__all__ = [
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
        The contents of the file, or what was read of it.
    config : Config
        The accelerator that the program is for.
    name : str
        Name of the model, for messages.
    batch : int
        Samples of an inference, of each core if each has its own; see :func:`.rewrites.batched`.
    spread_by : SpreadBy
        What cores have a part of each, if there are several.

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
    """Compile a quantised graph, see :func:`compile_model`; ``permute`` as :func:`plan_graph` takes it.

    Raises
    ------
    CompileError
        If the graph does not fit the configuration.
    """
    return _encode(spread_graph(graph, config, spread_by, permute=permute))


def encode(plan: Plan) -> Program:
    """The program of a finished plan, of an accelerator of one core."""
    return _encode(Spread.of_one(plan))


def _encode(spread: Spread) -> Program:
    preset = next((name for name, known in PRESETS.items() if known == spread.config), "custom")
    program = emit(spread, preset)
    check_program(spread, program)
    check_room(spread, program)
    return program


def spread_graph(graph: Graph, config: Config, spread_by: SpreadBy, *, permute: bool = True) -> Spread:
    """Plan for all cores, but do not encode; ``permute`` as :func:`plan_graph` takes it."""
    if config.cores > 1 and spread_by is SpreadBy.LAYER:
        return plan_by_layer(graph, config, permute=permute)
    plan = plan_graph(graph, config, permute=permute)
    if config.cores == 1:
        return Spread.of_one(plan)
    spread = spread_by_sample(plan)
    predict_together(spread.plans)
    return spread


def plan_graph(graph: Graph, config: Config, *, permute: bool = True) -> Plan:
    """Run all passes for a core that does all alone, but do not encode: the plan shows how the compiler has decided.

    Parameters
    ----------
    graph : Graph
    config : Config
    permute : bool
        Whether channels between layers may be put in another order, see :mod:`.permute`: where the plan is faster.
    """
    plan = _plan(graph, config)
    reordered = permuted(graph, config) if permute else None
    if reordered is None:
        return plan
    other = _plan(reordered, config)
    if other.predicted_cycles >= plan.predicted_cycles:
        return plan
    # By name: with another order, other copies may be needed.
    other.tell_model_words({layer.name: layer.words for layer in plan.predictions})
    return other


def _plan(graph: Graph, config: Config) -> Plan:
    """Run all passes for channels in this order: with wide windows, where the plan is faster."""

    def plan(wide: bool) -> Spread:
        return Spread.of_one(run(Plan(graph, config, given=graph, has_wide_windows=wide), PASSES))

    return fastest(plan).plans[0]
