"""Decide for every fragment whether the accelerator can run it, and if not, why."""

from __future__ import annotations

from onnx import NodeProto

from ..reading.errors import ATTEND, FOLD, NORMALISE, REWRITE, UnsupportedError
from ..reading.source import Source, size
from .fragments import (
    ADDITION,
    AVERAGE,
    CHOICE,
    CONCAT,
    EXTREMES,
    LAYOUT,
    LINEAR,
    MULTIPLICATION,
    NORMALISATION,
    PAD,
    POINTWISE,
    POOLING,
    QUANTISERS,
    SLICE,
    SUBTRACTION,
    TRANSPARENT,
    TRANSPOSED,
    Fragment,
    Kind,
    label,
    written_operator,
)
from .moves import is_crop, is_layout, is_move
from .of_channels import is_of_channels
from .quantisation import check_scales
from .wide import NARROW, REMEDY, is_wide, wide_between, wide_tensor

#: Operators that make a fragment one of their kind, and what may stand with one of them in a fragment.
_SPECIAL = (
    (Kind.AVERAGE, AVERAGE, (*QUANTISERS, *TRANSPARENT, *LAYOUT, *POOLING)),
    (Kind.CONCAT, CONCAT, POINTWISE),
    (Kind.SLICE, SLICE, POINTWISE),
    (Kind.PAD, PAD, POINTWISE),
)
#: Operators on two activations that are layers, each with its kind.
_OF_TWO = (
    dict.fromkeys(ADDITION, Kind.ADDITION)
    | dict.fromkeys(SUBTRACTION, Kind.SUBTRACTION)
    | dict.fromkeys(MULTIPLICATION, Kind.MULTIPLICATION)
    | dict.fromkeys(EXTREMES, Kind.EXTREME)
)
_REWRITTEN = ("GRU", "GroupNormalization", "InstanceNormalization", "LSTM", "LayerNormalization", "RNN")
_REMEDIES = {"Attention": ATTEND, NORMALISATION: FOLD} | dict.fromkeys(
    (*_REWRITTEN, "RMSNormalization", "Softmax"), REWRITE
)


def classify(source: Source, fragments: list[Fragment]) -> None:
    """Set ``kind`` and ``reason`` of every fragment.

    Raises
    ------
    ModelError
        If the scale or zero point of an activation is computed, per channel or not positive.
    """
    for fragment in fragments:
        check_scales(source, fragment)
        fragment.kind, fragment.reason = _judge(source, fragment)


def _judge(source: Source, fragment: Fragment) -> tuple[Kind, str]:
    bare = [name for name in [*fragment.inputs, *fragment.outputs] if not source.is_codes(name)]
    if bare:
        return Kind.HOST, f"{bare[0]!r} is {'of 16 bits' if is_wide(source, bare[0]) else 'not quantised'}"
    if any(source.function(node) for node in fragment.nodes):
        return Kind.FUNCTION, ""
    several = (
        len(fragment.outputs) != 1 and f"it computes {len(fragment.outputs)} tensors ({_listed(fragment.outputs)})"
    )
    if any(node.op_type in LINEAR for node in fragment.nodes):
        is_of_two = fragment.main.op_type == "QLinearMatMul" and len(source.dynamic_inputs(fragment.main)) > 1
        kind = Kind.MATRIX_PRODUCT if is_of_two else Kind.LINEAR
        return (Kind.HOST, several) if several else (kind, "")
    if any(node.op_type in TRANSPOSED for node in fragment.nodes):
        return (Kind.HOST, several) if several else (Kind.TRANSPOSED, "")
    for kind, operators, companions in _SPECIAL:
        if any(node.op_type in operators and not is_crop(source, node) for node in fragment.nodes):
            return _judge_special(source, fragment, kind, operators, companions)
    if several:
        return Kind.HOST, several
    if len(fragment.inputs) > 1:
        return _judge_combination(source, fragment)
    if is_of_channels(source, fragment):
        return Kind.OF_CHANNELS, ""
    known = (*POINTWISE, *POOLING)
    foreign = [
        node
        for node in fragment.nodes
        if node.op_type not in known and not is_layout(source, node) and not is_move(source, node)
    ]
    if foreign:
        return _refuse_foreign(fragment, foreign[0])
    if _is_layout(source, fragment):
        return Kind.LAYOUT, ""
    for node in fragment.nodes:
        problem = _pointwise_problem(source, node) if node.op_type in POINTWISE else ""
        if problem:
            fragment.cause = node
            return Kind.HOST, problem
    return Kind.REGION, ""


def _refuse_foreign(fragment: Fragment, node: NodeProto) -> tuple[Kind, str]:
    fragment.cause, fragment.remedy = node, _REMEDIES.get(written_operator(node), fragment.remedy)
    return Kind.HOST, f"the accelerator has no {_foreign(node)}"


def _is_foreign(source: Source, node: NodeProto) -> bool:
    """Whether an operator is none of a kind of layer, wherever it stands."""
    known = (*POINTWISE, *POOLING, *(operator for _, operators, _ in _SPECIAL for operator in operators))
    return node.op_type not in known and not is_layout(source, node) and not is_move(source, node)


def _foreign(node: NodeProto) -> str:
    """An operator that no layer computes: as the user wrote it, unless ONNX Runtime made it of several."""
    if node.op_type in CHOICE:
        return f"{node.op_type} by indices that are computed"
    written = written_operator(node)
    is_made = written != node.op_type and written in (*POINTWISE, *POOLING, *LAYOUT)
    return f"{node.op_type}, which ONNX Runtime computes for {written} and its neighbours" if is_made else written


def _judge_special(
    source: Source, fragment: Fragment, kind: Kind, operators: tuple[str, ...], companions: tuple[str, ...]
) -> tuple[Kind, str]:
    """A fragment with an operator that makes it ``kind``: whether the others in it may stand there."""
    special = [node for node in fragment.nodes if node.op_type in operators]
    wide = wide_tensor(source, fragment)
    if kind is Kind.AVERAGE and wide:
        fragment.cause, fragment.remedy = special[0], REMEDY
        return Kind.HOST, f"ONNX Runtime averages {wide} in float"
    combined = any(len(source.dynamic_inputs(node)) > 1 for node in fragment.nodes)
    if kind is Kind.AVERAGE and combined and any(node.op_type == "Sqrt" for node in fragment.nodes):
        fragment.cause, fragment.remedy = special[0], NORMALISE
        return Kind.HOST, f"{label(special[0])} begins a normalisation by what it reads"
    foreign = next((node for node in fragment.nodes if _is_foreign(source, node)), None)
    if foreign is not None:
        return _refuse_foreign(fragment, foreign)
    for node in [*special[1:], *(node for node in fragment.nodes if node.op_type not in (*operators, *companions))]:
        between = wide_between(source, fragment, special[0], node)
        fragment.remedy = NARROW if between else "put QuantizeLinear and DequantizeLinear between them"
        ends = f"tensors of 8 bits, which {between} between them is not" if between else "quantised tensors"
        return Kind.HOST, f"{label(node)} stands with {label(special[0])} between {ends}"
    # What becomes of one activation is a function of each of its elements, in whatever branches.
    is_of_one = kind in (Kind.SLICE, Kind.PAD) and len(fragment.inputs) == 1
    for node in fragment.nodes:
        if node is not special[0] and len(source.dynamic_inputs(node)) > 1 and not is_of_one:
            return Kind.HOST, f"{label(node)} combines activations with {label(special[0])}"
        problem = _pointwise_problem(source, node) if node.op_type in companions and companions is POINTWISE else ""
        if problem:
            return Kind.HOST, problem
    if kind is not Kind.SLICE and len(fragment.outputs) != 1:
        return Kind.HOST, f"it computes {len(fragment.outputs)} tensors ({_listed(fragment.outputs)})"
    return kind, ""


def _judge_combination(source: Source, fragment: Fragment) -> tuple[Kind, str]:
    """A fragment that combines several activations: two that become one, or perhaps a function of a single one."""
    first, *after = (node for node in fragment.nodes if node.op_type not in (*QUANTISERS, *TRANSPARENT))
    # ONNX' own operators take codes as integers, without their scales.
    quantised = first.domain == "com.microsoft" or not source.is_codes(first.output[0])
    is_of_two = len(fragment.inputs) == 2 and quantised and {node.op_type for node in after} <= {"Relu", "Clip"}
    if first.op_type in _OF_TWO and is_of_two and not wide_tensor(source, fragment):
        return _OF_TWO[first.op_type], ""
    fragment.cause = next((node for node in fragment.nodes if len(source.dynamic_inputs(node)) > 1), None)
    pointwise = all(node.op_type in POINTWISE and not _pointwise_problem(source, node) for node in fragment.nodes)
    if pointwise:
        return Kind.COMBINATION, ""
    if fragment.cause is not None and written_operator(fragment.cause) in _REMEDIES:
        return _refuse_foreign(fragment, fragment.cause)
    fragment.remedy = combines(source, fragment).remedy
    return Kind.HOST, combines(source, fragment).reason


def combines(source: Source, fragment: Fragment) -> UnsupportedError:
    """Why a fragment cannot be a table."""
    reason = f"it combines {len(fragment.inputs)} activations ({_listed(fragment.inputs)})"
    wide = wide_tensor(source, fragment)
    if wide and any(node.op_type in ADDITION for node in fragment.nodes):
        return UnsupportedError(f"{reason}, and ONNX Runtime computes with {wide} in float", REMEDY)
    return UnsupportedError(reason)


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def _is_layout(source: Source, fragment: Fragment) -> bool:
    inner = [node for node in fragment.nodes if node.op_type not in QUANTISERS]
    if any(node.op_type not in TRANSPARENT and not is_layout(source, node) for node in inner):
        return False
    ends = [node for node in fragment.nodes if node.op_type in QUANTISERS]
    if not ends:
        return True
    if not inner or source.types[fragment.inputs[0]] != source.types[fragment.outputs[0]]:
        return False
    values = [[source.constants[name].tolist() for name in node.input[1:] if name] for node in ends]
    return all(value == values[0] for value in values)


def _pointwise_problem(source: Source, node: NodeProto) -> str:
    """Why the result for a code would depend on more than the code, or an empty string."""
    operands = node.input if node.op_type not in QUANTISERS else node.input[:1]
    for name in operands:
        constant = source.constants.get(name)
        if constant is not None and constant.size != 1:
            return f"operand {name!r} of {label(node)} has {constant.size} values, and only scalars can be tabulated"
    names = [*source.dynamic_inputs(node), *node.output]
    if len({size(source.shapes[name]) for name in names if name in source.shapes}) > 1:
        return f"{label(node)} changes the shape"
    return ""
