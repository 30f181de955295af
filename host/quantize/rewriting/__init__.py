"""Rewritings of a float model before it is quantised: operators without an exact integer form become others with one.

Each file has some, and each of them states what it changes; the lists below have them in the order of their use.
"""

from __future__ import annotations

import onnx

from ...model.onnx_graph import set_nodes
from .affine import AFFINE, LAST_AXIS, PRELU
from .convolutions import DILATION, TRANSPOSED
from .float_graph import FloatGraph, Mask, NormalisedRows, Rewriting, Rewritten
from .normalisation import GROUP_NORMALISATION, LAYER_NORMALISATION, SPELLED_LAYER_NORMALISATION
from .pooling import (
    AVERAGE_OF_ANY_AXES,
    AVERAGE_OF_AXES,
    AVERAGE_OF_LARGE_MAP,
    AVERAGE_OF_MAP,
    AVERAGE_OF_WINDOWS,
    GATHERED,
    MAXIMUM_OF_ANY_AXES,
    MAXIMUM_OF_AXES,
    MAXIMUM_OF_MAP,
    MINIMUM,
)
from .products import COMPUTED_ADDEND, EINSUM, ROW_BIAS, VECTOR_BIAS, WEIGHTS_AT_LEFT, WIDE_PRODUCT
from .recurrent import RECURRENT, UNROLLED
from .resampling import RESAMPLING
from .softmax import ATTENTION, QUOTIENT, SOFTMAX
from .written_out import FAST_VARIANCE, FLATTENED_SOFTMAX, SUM, TURNED_DIFFERENCE, WRITTEN_SOFTMAX

__all__ = ["RECURRENT", "REWRITINGS", "SPELLINGS", "WRITTEN_OUT", "Mask", "Rewriting", "Rewritten", "rewrite"]

#: Rewritings of operators that exporters write out as several. They come before values of the samples are computed.
WRITTEN_OUT: tuple[Rewriting, ...] = (FLATTENED_SOFTMAX, WRITTEN_SOFTMAX, SUM, FAST_VARIANCE, TURNED_DIFFERENCE)
#: Rewritings to operators that the accelerator runs. They come after WRITTEN_OUT, and read values of the samples.
SPELLINGS: tuple[Rewriting, ...] = (
    DILATION,
    EINSUM,
    WEIGHTS_AT_LEFT,
    ROW_BIAS,
    VECTOR_BIAS,
    SPELLED_LAYER_NORMALISATION,
    ATTENTION,
    SOFTMAX,
    QUOTIENT,
    COMPUTED_ADDEND,
    WIDE_PRODUCT,
    GROUP_NORMALISATION,
    UNROLLED,
    AVERAGE_OF_MAP,
    AVERAGE_OF_AXES,
    AVERAGE_OF_WINDOWS,
    MINIMUM,
    MAXIMUM_OF_MAP,
    MAXIMUM_OF_AXES,
    TRANSPOSED,
    RESAMPLING,
    GATHERED,
    AVERAGE_OF_ANY_AXES,
    MAXIMUM_OF_ANY_AXES,
    AVERAGE_OF_LARGE_MAP,
    PRELU,
    LAYER_NORMALISATION,
    LAST_AXIS,
    AFFINE,
)
REWRITINGS: tuple[Rewriting, ...] = (*WRITTEN_OUT, *SPELLINGS)


def rewrite(model: onnx.ModelProto, rewritings: tuple[Rewriting, ...], rows: NormalisedRows) -> list[Rewritten]:
    """Apply rewritings in order to a float model whose shapes are known, and return what was rewritten.

    ``rows`` are values of what is normalised; there are none without samples.
    """
    found: list[Rewritten] = []
    for rewriting in rewritings:
        graph, nodes, count = FloatGraph(model, rows), [], len(found)
        for node in [*graph.nodes]:
            if graph.is_dropped(node):
                continue
            made = rewriting.spell(graph, node) if node.op_type in rewriting.operators else None
            if made is not None:
                found.append(
                    Rewritten(f"{node.op_type} '{node.name}'", rewriting, graph.alike, graph.uncut, graph.masks)
                )
                graph.alike, graph.uncut, graph.masks = [], {}, []
            nodes += [node] if made is None else made
        if len(found) > count:
            set_nodes(model.graph, (node for node in nodes if not graph.is_dropped(node)))
            del model.graph.value_info[:]
            inferred = onnx.shape_inference.infer_shapes(model)
            model.graph.value_info.extend(inferred.graph.value_info)
    return found
