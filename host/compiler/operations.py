"""Operations: choose, for every layer, how an engine executes it."""
from __future__ import annotations

from ..graph import Convolution, Layer, MaxPool, Pointwise
from .lower_convolution import ConvolutionOperation
from .lower_lanewise import LanewiseOperation
from .operation import Operation
from .plan import Plan

OPERATIONS: dict[type[Layer], type[Operation]] = {
    Convolution: ConvolutionOperation,
    MaxPool: LanewiseOperation,
    Pointwise: LanewiseOperation,
}


def plan_operations(plan: Plan) -> Plan:
    """Make the operation of every layer.

    Raises
    ------
    CompileError
        If a layer's scales are out of range.
    """
    for index, layer in enumerate(plan.graph.layers):
        kind = next(kind for kind in type(layer).__mro__ if kind in OPERATIONS)
        plan.operations.append(OPERATIONS[kind](plan, index))
    return plan
