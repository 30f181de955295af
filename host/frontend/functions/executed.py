"""The graph that ONNX Runtime executes: what it makes of the user's, and what all later passes work on."""

from __future__ import annotations

import onnx

from ...model.executed import executed_model
from ...model.runtime import RUNTIME_ERRORS
from ..fragments.fragments import note_written
from ..reading.errors import ModelError
from ..reading.parse import name_nodes
from ..reading.source import Source
from .functions import find_functions, put_back, stand_in


def follow(source: Source) -> Source:
    """The model as ONNX Runtime executes it, not yet measured.

    ONNX Runtime moves, merges and drops QuantizeLinear and DequantizeLinear, and fuses what stands between them, under
    conditions that reach across a whole network. Its own graph is the only one in which every operator is computed as
    it stands; parts of it give in isolation what they give in place.

    Functions that are layers stay whole in it, see :mod:`.functions`.

    Raises
    ------
    ModelError
        If ONNX Runtime cannot load the model, or a function is not the layer that it should be.
    """
    functions = find_functions(source)
    given, calls = stand_in(source, functions)
    try:
        model = executed_model(given)
    except RUNTIME_ERRORS as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"{source.name}: ONNX Runtime cannot run the model: {reason}") from error
    _restore_names(source.model, model)
    name_nodes(model)
    put_back(source.model, model, calls)
    return Source(source.name, model, source.file, source.qdq, functions=functions)


def _restore_names(given: onnx.ModelProto, model: onnx.ModelProto) -> None:
    """Name every node as the user did, and note which operator it was; a fusion may append its own name."""
    written = {node.name: node.op_type for node in given.graph.node}
    for node in model.graph.node:
        name = node.name
        while name and name not in written:
            name = name.rpartition("/")[0]
        if name:
            node.name = name
            note_written(node, written[name])
