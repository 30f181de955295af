"""Products of integers, ConvInteger and MatMulInteger, as quantised products; and the causes that keep a product in
float."""

from __future__ import annotations

import copy

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from ..graph import Convolution, own_name
from ..model.model_graph import mark_form
from ..model.onnx_graph import import_operators, operator_set
from .fragments import FLOAT_PRODUCTS, LAYOUT, POOLING, QUANTISERS, TRANSPARENT, Fragment, find_fragments, label
from .lowering.lowering import OperatorLowering, Runs, refuses
from .parse import QUANTISE, fix_batch, measure
from .source import FOLD_AFTER, ONE_TYPE, ModelError, OperandError, Source, UnsupportedError

INTEGER = ("ConvInteger", "MatMulInteger")
#: Most results that one sum is composed of; each costs an output channel. It is enough for any code by any weight.
MOST_RESULTS = 128
#: Steps from the least code to the greatest.
_STEPS = 255


@refuses(
    "weights or zero points are computed, or do not fit",
    f"the sums take more values than {MOST_RESULTS:,} results of 8 bits",
)
def replace_integer_products(source: Source) -> Source:
    """Replace every ConvInteger and MatMulInteger by a product with several results of 8 bits, and their sum.

    A sum s lies between bounds that weights and zero points give, ``least <= s <= least + 255 * n``. So

        s = least + sum of clip(s - least - 255 * i, 0, 255) for i in range(n)

    and each term is a result of QLinearConv or QGemm with scales of 1 and a bias, without any rounding. The host
    computes the sum over n.

    Returns
    -------
    Source
        The new source, not measured; ``source`` itself if there are no such operators.
    """
    if not any(node.op_type in INTEGER for node in source.model.graph.node):
        return source
    fix_batch(source.model)
    measure(source)
    model = copy.deepcopy(source.model)
    del model.graph.node[:]
    for node in source.model.graph.node:
        is_live = node.op_type in INTEGER and any(name in source.shapes for name in node.output)
        model.graph.node.extend(_replace(source, model, node) if is_live else [node])
    import_operators(model, "com.microsoft", 1)
    # ONNX Runtime must treat the other nodes as those of the given model.
    mark_form(model, qdq=source.qdq)
    return Source(source.name, model, source.file, source.qdq)


def _replace(source: Source, model: onnx.ModelProto, node: NodeProto) -> list[NodeProto]:
    """Return the nodes that replace an integer product."""
    is_convolution = node.op_type == "ConvInteger"
    codes, output = node.input[0], node.output[0]
    zero_point, weights = _operands(source, node)
    # Output channels are in front, then the elements that each of them sums.
    weights = weights if is_convolution else weights.T
    least, count = _bounds(source, node, weights, zero_point)
    channels, dtype = len(weights), zero_point.dtype
    # The results of a channel are side by side, so that groups of channels stay together.
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
    """Return a ReduceSum, whose axes have been an input since operator set 13."""
    if operator_set(model) >= 13:
        return "ReduceSum", "sum", [source, constant("axis", np.array([axis]))], result, {"keepdims": 0}
    return "ReduceSum", "sum", [source], result, {"keepdims": 0, "axes": [axis]}


def _operands(source: Source, node: NodeProto) -> tuple[np.ndarray, np.ndarray]:
    """Return the zero point of the activation, and int8 weights without a zero point."""
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
    """Return the least sum of each output channel, int64[channels], and the number of results for the widest range."""
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


INTEGER_LOWERING = OperatorLowering(
    replace_integer_products, INTEGER, Runs.LAYER, (Convolution,), title="products with int32 results"
)


# The cause for which ONNX Runtime computes a convolution or matrix product in float is read from the user's model.

_REMOVED_BY_FUSION = ("Relu", "Clip", "Min", "Max", "Add", *TRANSPARENT)
_RULES = (
    "its operands are not quantised to its rules",
    (
        "input, output and weights need QuantizeLinear and DequantizeLinear, a bias int32 codes with the scale of "
        "input times weights, and alpha and beta must be 1 (onnxruntime.quantization does all this)"
    ),
)
_SEPARATE = "put QuantizeLinear and DequantizeLinear between them"
#: Position, name and type of the operands of a product, and the remedy with which they get the type.
_OPERANDS = (
    (1, "weights are", np.int8, "quantise them with weight_type=QuantType.QInt8"),
    (
        2,
        "bias is",
        np.int32,
        "quantise it to int32 with the scale of input times weights (Brevitas: bias_quant=Int32Bias)",
    ),
)


def explain_float(given: Source, name: str, doubt: UnsupportedError) -> ModelError:
    """Return the refusal of a product that ONNX Runtime computes in float although codes surround it.

    Parameters
    ----------
    given : Source
        The user's model, not yet measured.
    name : str
        Name of the product's node.
    doubt : UnsupportedError
        Why its bytes may differ from those of an integer sum, and a remedy; empty if there is no reason.
    """
    fix_batch(given.model)
    measure(given)
    fragment = next(
        (fragment for fragment in find_fragments(given) if any(node.name == name for node in fragment.nodes)), None
    )
    node = next((node for node in fragment.nodes if node.name == name), None) if fragment else None
    if fragment is None or node is None:
        return ModelError(f"{given.name}: ONNX Runtime computes {name!r} in float; quantise its ends")
    doubt = _as_given(given, node, doubt)
    begin = f"{given.name}: {label(node)}"
    products = [other for other in fragment.nodes if other.op_type in FLOAT_PRODUCTS]
    if len(products) > 1:
        return ModelError(f"{given.name}: {label(products[1])} follows {label(products[0])} in float; {_SEPARATE}")
    if len(given.dynamic_inputs(node)) > 1:
        return ModelError(
            f"{begin} multiplies two activations in float; put QuantizeLinear and DequantizeLinear around it, "
            "of one type and with the zero point 0 before it"
        )
    if len(fragment.inputs) > 1:
        return ModelError(
            f"{begin} is combined with {len(fragment.inputs)} activations "
            f"({', '.join(map(repr, fragment.inputs))}) in float; put QuantizeLinear and DequantizeLinear "
            "after it"
        )
    return ModelError(_remedy(given, node, fragment, doubt))


def _as_given(given: Source, node: NodeProto, doubt: UnsupportedError) -> UnsupportedError:
    """Return a doubt about an operand with the user's name, as ONNX Runtime renames operands with several readers."""
    at = next(
        (at for at, kind, *_ in _OPERANDS if isinstance(doubt, OperandError) and kind.startswith(doubt.operand)), 0
    )
    if not isinstance(doubt, OperandError) or at >= len(node.input) or not node.input[at]:
        return doubt
    name = node.input[at]
    others = [other for other in given.model.graph.node if name in other.input and other is not node]
    own = f"one of its own, as {label(others[0])} reads it too: " if others else ""
    return doubt.of(name, f"{own}{doubt.remedy}")


@refuses("the model as the user wrote it has float weights in a product")
def check_weights(given: Source, name: str) -> None:
    """Refuse float weights, which ONNX Runtime would quantise by itself, with a zero point."""
    node = given.named.get(name)
    operands = node.input[:2] if node is not None and node.op_type in FLOAT_PRODUCTS else ()
    for operand in operands:
        if operand in given.float_initializers:
            raise ModelError(
                f"{given.name}: the weights {operand!r} of {label(node)} must be int8, not float32; "
                "quantise with weight_type=QuantType.QInt8"
            )


def _remedy(given: Source, node: NodeProto, fragment: Fragment, doubt: UnsupportedError) -> str:
    at = fragment.nodes.index(node)
    before, after = (
        [other for other in nodes if other.op_type not in QUANTISERS]
        for nodes in (fragment.nodes[:at], fragment.nodes[at + 1 :])
    )
    foreign = [other for other in before if other.op_type not in (*LAYOUT, *POOLING, *TRANSPARENT)]
    foreign += [other for other in after if other.op_type not in (*LAYOUT, *POOLING, *_REMOVED_BY_FUSION)]
    others = foreign or [*after, *before]
    begin = f"{given.name}: ONNX Runtime computes {label(node)} in float, because"
    again = _quantised_again(given, fragment.inputs[0])
    if again is not None and not foreign:
        return (
            f"{begin} {label(again)} quantises codes again; ONNX Runtime merges both quantisations, and the bias "
            "does not fit the scale; quantise the tensor once"
        )
    shown = " and ".join(map(label, others))
    if others and others[0].op_type == "BatchNormalization":
        return f"{begin} {shown} stands after it; {FOLD_AFTER}"
    cause = _cause(given, node, fragment, others, doubt) or ("" if isinstance(doubt, OperandError) else _RULES)
    if not cause:
        return f"{begin} {doubt.reason}; use {doubt.remedy}"
    reason, remedy = cause
    return (
        f"{begin} {reason}, and {doubt.reason}; {remedy}, or use {doubt.remedy}"
        if doubt.reason
        else f"{begin} {reason}; {remedy}"
    )


def _cause(
    given: Source, node: NodeProto, fragment: Fragment, others: list[NodeProto], doubt: UnsupportedError
) -> tuple[str, str] | None:
    """Return why ONNX Runtime does not make a product an integer one, and the remedy; None if no node shows it."""
    types = [given.types[name] for name in (*fragment.inputs, *fragment.outputs) if given.is_codes(name)]
    is_operand = isinstance(doubt, OperandError)
    if len(set(types)) > 1 and not is_operand:
        return f"it reads {types[0]} and makes {types[-1]} codes", ONE_TYPE
    for at, kind, wanted, remedy in _OPERANDS:
        codes = _codes_of(given, node, at)
        if codes is not None and codes in given.constants and given.constants[codes].dtype != wanted:
            return f"its {kind} {given.constants[codes].dtype} codes {codes!r}", remedy
    if is_operand and _codes_of(given, node, 2) is not None:
        return None
    shown = " and ".join(map(label, others))
    if others and all(other.op_type in ("Relu", "Clip") for other in others):
        return (
            f"{shown} cuts codes that the QuantizeLinear after it keeps",
            (
                f"quantise the output of {node.op_type} as well, or let the range of that QuantizeLinear end where the "
                f"{others[0].op_type} cuts"
            ),
        )
    if others:
        verb = "stands" if len(others) == 1 else "stand"
        return f"{shown} {verb} between it and its quantised ends", _SEPARATE
    return None


def _codes_of(given: Source, node: NodeProto, at: int) -> str | None:
    """Return the codes from which an operand is dequantised."""
    name = node.input[at] if len(node.input) > at else ""
    maker = next((other for other in given.model.graph.node if name and name in other.output), None)
    return maker.input[0] if maker is not None and maker.op_type == "DequantizeLinear" else None


def _quantised_again(given: Source, tensor: str) -> NodeProto | None:
    """Return the QuantizeLinear that computes a tensor of codes, if its input was dequantised from 8 bits just before;
    ONNX Runtime does not merge such a pair of 8 and 16 bits.
    """
    again = given.producer.get(tensor)
    if again is None or again.op_type != "QuantizeLinear":
        return None
    before = given.producer.get(again.input[0])
    while before is not None and before.op_type in (*LAYOUT, *TRANSPARENT):
        before = given.producer.get(before.input[0])
    merges = before is not None and before.op_type == "DequantizeLinear" and given.is_codes(before.input[0])
    return again if merges else None
