"""Why ONNX Runtime computes a convolution or matrix product in float, read from the model as the user wrote it."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto

from ..reading.errors import FOLD_AFTER, ONE_TYPE, ModelError, OperandError, UnsupportedError
from ..reading.measure import fix_batch, measure
from ..reading.source import Source
from .fragments import FLOAT_PRODUCTS, LAYOUT, POOLING, QUANTISERS, TRANSPARENT, Fragment, label
from .grouping import find_fragments
from .lowering import refuses

_REMOVED_BY_FUSION = ("Relu", "Clip", "Min", "Max", "Add", *TRANSPARENT)
_RULES = (
    "its operands are not quantised to its rules",
    (
        "input, output and weights need QuantizeLinear and DequantizeLinear, a bias int32 codes with the scale of "
        "input times weights, and alpha and beta must be 1 (onnxruntime.quantization does all this)"
    ),
)
_SEPARATE = "put QuantizeLinear and DequantizeLinear between them"
#: Position, name and type of the operands of a product, and how they come to have it.
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
    """The refusal of a product that ONNX Runtime computes in float although codes surround it.

    Parameters
    ----------
    given : Source
        The model as the user wrote it, not yet measured.
    name : str
        Of the product's node.
    doubt : UnsupportedError
        Why its bytes may not be those of an integer sum, and what would make them so; empty if it has none.
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
            "of one type and with the zero point 0 in front of it"
        )
    if len(fragment.inputs) > 1:
        return ModelError(
            f"{begin} is combined with {len(fragment.inputs)} activations "
            f"({', '.join(map(repr, fragment.inputs))}) in float; put QuantizeLinear and DequantizeLinear "
            "after it"
        )
    return ModelError(_remedy(given, node, fragment, doubt))


def _as_given(given: Source, node: NodeProto, doubt: UnsupportedError) -> UnsupportedError:
    """A doubt of an operand with the user's name of it: where several nodes read it, ONNX Runtime makes others."""
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
    """Refuse float weights, which ONNX Runtime would quantise itself, with a zero point."""
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
    """What keeps ONNX Runtime from making a product an integer one, and the remedy; None if it shows in no node."""
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
    """What an operand is dequantised from."""
    name = node.input[at] if len(node.input) > at else ""
    maker = next((other for other in given.model.graph.node if name and name in other.output), None)
    return maker.input[0] if maker is not None and maker.op_type == "DequantizeLinear" else None


def _quantised_again(given: Source, tensor: str) -> NodeProto | None:
    """The QuantizeLinear that a tensor of codes comes from, if it quantises what was dequantised from 8 bits just
    before: of 8 and 16 bits in a row ONNX Runtime merges nothing.
    """
    again = given.producer.get(tensor)
    if again is None or again.op_type != "QuantizeLinear":
        return None
    before = given.producer.get(again.input[0])
    while before is not None and before.op_type in (*LAYOUT, *TRANSPARENT):
        before = given.producer.get(before.input[0])
    merges = before is not None and before.op_type == "DequantizeLinear" and given.is_codes(before.input[0])
    return again if merges else None
