"""Operations: choose, for every layer, how an engine executes it."""
from __future__ import annotations

from ..graph import Add, Concat, Convolution, Layer, MaxPool, Pointwise, Slice
from .lower_add import AddOperation
from .lower_convolution import ConvolutionOperation
from .lower_copy import CopyOperation
from .lower_depthwise import DepthwiseOperation, is_depthwise
from .lower_grouped import GroupedConvolutionOperation
from .lower_lanewise import LanewiseOperation
from .operation import Operation
from .plan import Plan

OPERATIONS: dict[type[Layer], type[Operation]] = {
    Add: AddOperation,
    Concat: CopyOperation,
    MaxPool: LanewiseOperation,
    Pointwise: LanewiseOperation,
    Slice: CopyOperation,
}


def plan_operations(plan: Plan) -> Plan:
    """Make the operation of every layer.

    Raises
    ------
    CompileError
        If a layer's scales are out of range.
    """
    for index, layer in enumerate(plan.graph.layers):
        plan.operations.append(_kind(plan, layer)(plan, index))
    return plan


def _kind(plan: Plan, layer: Layer) -> type[Operation]:
    if not isinstance(layer, Convolution):
        return OPERATIONS[type(layer)]
    if is_depthwise(layer, plan.config, plan.graph.tensors[layer.output].shape[:2]):
        return DepthwiseOperation
    return ConvolutionOperation if layer.groups == 1 else GroupedConvolutionOperation
