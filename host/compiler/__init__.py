"""The compiler: from a quantised graph to a program for one configuration, in ordered named passes."""

from __future__ import annotations

import dataclasses

from ...golden.config import Config
from ...golden.presets import PRESETS
from ...golden.program.program import Program
from ..graph import Graph
from ..model.model import Model
from .data.errors import CompileError
from .data.plan import Plan
from .lower.butterfly_fit import check_pattern
from .outcome.emit import check_program, emit
from .passes import PASSES, Pass, run
from .rewrite.batch import batched
from .rewrite.permute import permuted

#: All that the rest of the host knows of the compiler.
__all__ = [
    "PASSES",
    "CompileError",
    "Pass",
    "batched",
    "check_pattern",
    "compile_graph",
    "compile_model",
    "encode",
    "plan_graph",
]


def compile_model(model: bytes | Model, config: Config, name: str = "model", *, batch: int = 1) -> Program:
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
        Samples of an inference, see :func:`.batch.batched`.

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

    return compile_graph(batched(import_model(model, name), batch), config)


def compile_graph(graph: Graph, config: Config) -> Program:
    """Compile a quantised graph, see :func:`compile_model`.

    Raises
    ------
    CompileError
        If the graph does not fit the configuration.
    """
    return encode(plan_graph(graph, config))


def encode(plan: Plan) -> Program:
    """The program of a finished plan."""
    preset = next((name for name, known in PRESETS.items() if known == plan.config), "custom")
    program = emit(plan, preset)
    check_program(plan, program)
    return program


def plan_graph(graph: Graph, config: Config, *, permute: bool = True) -> Plan:
    """Run all passes, but do not encode: the plan shows how the compiler has decided.

    Parameters
    ----------
    graph : Graph
    config : Config
    permute : bool
        Whether channels between layers may be put in another order, see :mod:`.permute`: where the plan is faster.
    """
    plan = run(Plan(graph, config, given=graph), PASSES)
    reordered = permuted(graph, config) if permute else None
    if reordered is None:
        return plan
    other = run(Plan(reordered, config, given=reordered), PASSES)
    if other.predicted_cycles >= plan.predicted_cycles:
        return plan
    # By name: with another order, other copies may be needed.
    words = {layer.name: layer.words for layer in plan.predictions if layer.connections}
    other.predictions = [
        dataclasses.replace(layer, model_words=words[layer.name]) if layer.connections else layer
        for layer in other.predictions
    ]
    return other
