"""Integer products: ConvInteger and MatMulInteger as quantised products whose results add up to the int32 sum."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ...graph import Convolution, own_name
from ...model.model_graph import mark_form
from ..reading.errors import ModelError
from ..reading.measure import fix_batch, measure
from ..reading.parse import QUANTISE
from ..reading.source import Source
from .fragments import label
from .lowering import Lowering, Runs, refuses

INTEGER = ("ConvInteger", "MatMulInteger")
#: Results that one sum is put together from, at most; each costs an output channel. Enough for any code by any weight.
MOST_RESULTS = 128
#: From the least code to the greatest.
_STEPS = 255


@refuses(
    "weights or zero points are computed, or do not fit",
    f"the sums take more values than {MOST_RESULTS:,} results of 8 bits",
)
def replace_integer_products(source: Source) -> Source:
    """Write every ConvInteger and MatMulInteger as a product with results of 8 bits, and their sum.

    A sum s lies between bounds that weights and zero points give, ``least <= s <= least + 255 * n``. So

        s = least + sum of clip(s - least - 255 * i, 0, 255) for i in range(n)

    and each term is what QLinearConv or QGemm computes with scales of 1 and a bias, without rounding anything. The sum
    over n is for the host.

    Returns
    -------
    Source
        Not measured; ``source`` itself where there are no such operators.
    """
    if not any(node.op_type in INTEGER for node in source.model.graph.node):
        return source
    fix_batch(source.model)
    measure(source)
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    del model.graph.node[:]
    for node in source.model.graph.node:
        is_live = node.op_type in INTEGER and any(name in source.shapes for name in node.output)
        model.graph.node.extend(_replace(source, model, node) if is_live else [node])
    if all(entry.domain != "com.microsoft" for entry in model.opset_import):
        model.opset_import.add(domain="com.microsoft", version=1)
    # ONNX Runtime must go on treating the others as it treats the model.
    mark_form(model, qdq=source.qdq)
    return Source(source.name, model, source.file, source.qdq)


def _replace(source: Source, model: onnx.ModelProto, node: NodeProto) -> list[NodeProto]:
    """The nodes that compute what one integer product computes."""
    is_convolution = node.op_type == "ConvInteger"
    codes, output = node.input[0], node.output[0]
    zero_point, weights = _operands(source, node)
    # Output channels first, then everything that each of them adds up.
    weights = weights if is_convolution else weights.T
    least, count = _bounds(source, node, weights, zero_point)
    channels, dtype = len(weights), zero_point.dtype
    # The results of a channel lie side by side, so that groups of channels stay together.
    kernel = np.repeat(weights, count, axis=0)
    bias = (-least[:, None] - _STEPS * np.arange(count)).reshape(-1).astype(np.int32)
    first = dtype.type(np.iinfo(dtype).min)

    def own(name: str) -> str:
        return own_name(f"{output} {name}", source.shapes, source.constants)

    def constant(name: str, value: np.ndarray) -> str:
        model.graph.initializer.append(numpy_helper.from_array(value, own(name)))
        return own(name)

    one = constant("scale", np.float32(1))
    ahead = [codes, one, constant("input zero point", zero_point)]
    weighted = [constant("weights", kernel), one, constant("weight zero point", np.int8(0))]
    after = [one, constant("least code", first)]
    shape = source.shapes[output]
    if is_convolution:
        product = helper.make_node(
            "QLinearConv", [*ahead, *weighted, *after, constant("bias", bias)], [own("codes")], name=node.name
        )
        product.attribute.extend(node.attribute)
        nodes, axis, split, bound = [product], 2, (*shape[:1], channels, count, *shape[2:]), (-1, *[1] * len(shape[2:]))
    else:
        rows = constant("rows", np.array([-1, weights.shape[1]]))
        ahead[0] = own("rows of codes")
        product = helper.make_node(
            "QGemm",
            [*ahead, *weighted, constant("bias", bias), *after],
            [own("codes")],
            name=node.name,
            domain="com.microsoft",
            transB=1,
        )
        reshape = helper.make_node("Reshape", [codes, rows], ahead[:1], name=f"{node.name} rows")
        nodes, axis, split, bound = [reshape, product], len(shape), (*shape[:-1], channels, count), (-1,)
    total = (least - count * int(first)).astype(np.int32).reshape(bound)
    return [
        *nodes,
        *(
            helper.make_node(operator, inputs, [result], name=f"{node.name} {name}", **attributes)
            for operator, name, inputs, result, attributes in (
                ("Cast", "int32", [own("codes")], own("int32"), {"to": onnx.TensorProto.INT32}),
                ("Reshape", "parts", [own("int32"), constant("shape", np.array(split))], own("parts"), {}),
                _reduce(model, own("parts"), own("sum"), axis, constant),
                ("Add", "total", [own("sum"), constant("least", total)], output, {}),
            )
        ),
    ]


def _reduce(model: onnx.ModelProto, source: str, result: str, axis: int, constant) -> tuple:
    """ReduceSum, whose axes have been an input since operator set 13."""
    version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if version >= 13:
        return "ReduceSum", "sum", [source, constant("axis", np.array([axis]))], result, {"keepdims": 0}
    return "ReduceSum", "sum", [source], result, {"keepdims": 0, "axes": [axis]}


def _operands(source: Source, node: NodeProto) -> tuple[np.ndarray, np.ndarray]:
    """The zero point of the activation, and int8 weights without one."""
    names = [*node.input, "", ""][:4]
    if any(name and name not in source.constants for name in names[1:]):
        raise ModelError(
            f"{source.name}: {label(node)} quantises at run time, and the accelerator needs constant "
            f"weights and zero points; {QUANTISE}"
        )
    weights = source.constants[names[1]].astype(np.int16)
    if node.op_type == "MatMulInteger" and weights.ndim != 2:
        raise ModelError(
            f"{source.name}: the weights {names[1]!r} of {label(node)} must be one matrix, not of the "
            f"shape {list(weights.shape)}; use a product for each"
        )
    zeros = source.constants[names[3]].astype(np.int16) if names[3] else np.zeros(1, np.int16)
    along = (-1, *[1] * (weights.ndim - 1)) if node.op_type == "ConvInteger" else (1, -1)
    weights = weights - zeros.reshape(along)
    if not (weights >= -128).all() or not (weights <= 127).all():
        raise ModelError(
            f"{source.name}: the weights {names[1]!r} of {label(node)} must lie between -128 and 127 less "
            f"their zero point, not reach {weights.flat[np.abs(weights).argmax()]}; "
            "use int8 weights with the zero point 0"
        )
    own = source.constants[names[2]] if names[2] else np.zeros(1, source.types[node.input[0]])
    if own.size != 1:
        raise ModelError(
            f"{source.name}: the zero point {names[2]!r} of {label(node)} must be one value, not "
            f"{own.size}; quantise activations per tensor"
        )
    return own.reshape(()), weights.astype(np.int8)


def _bounds(source: Source, node: NodeProto, weights: np.ndarray, zero_point: np.ndarray) -> tuple[np.ndarray, int]:
    """The least sum of each output channel, int64[channels], and the results that the widest range takes."""
    limits = np.iinfo(zero_point.dtype)
    low, high = (np.int64(limit) - int(zero_point) for limit in (limits.min, limits.max))
    ends = weights.reshape(len(weights), -1).astype(np.int64)
    ends = np.stack([ends * low, ends * high])
    least, greatest = ends.min(axis=0).sum(axis=1), ends.max(axis=0).sum(axis=1)
    values = int((greatest - least).max())
    count = max(-(-values // _STEPS), 1)
    if count > MOST_RESULTS:
        raise ModelError(
            f"{source.name}: the int32 sums of {label(node)} take {values + 1} values; the accelerator's "
            f"results have 8 bits, and at most {MOST_RESULTS} of them make a sum; requantise the sums "
            "(QLinearConv, QLinearMatMul)"
        )
    return least, count


INTEGER_LOWERING = Lowering(
    replace_integer_products, INTEGER, Runs.LAYER, (Convolution,), title="products with int32 results"
)
