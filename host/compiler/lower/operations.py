"""Operations: choose, for every layer, how an engine executes it."""

from __future__ import annotations

from ...graph import Add, AveragePool, Concat, Convolution, Layer, MaxPool, Pointwise, Slice
from ..operation import Operation
from ..plan import Plan
from ..storage import Storage
from .add import AddOperation
from .average import BorderedAverage
from .convolution import ConvolutionOperation
from .copy import CopyOperation
from .depthwise import DepthwiseOperation, is_depthwise
from .grouped import GroupedConvolutionOperation
from .lanewise import LanewiseOperation

OPERATIONS: dict[type[Layer], type[Operation]] = {
    Add: AddOperation,
    Concat: CopyOperation,
    MaxPool: LanewiseOperation,
    Pointwise: LanewiseOperation,
    Slice: CopyOperation,
}


def plan_operations(plan: Plan) -> Plan:
    """Make the operation of every layer, for tensors that lie whole in the feature memory.

    Raises
    ------
    CompileError
        If a layer's scales are out of range.
    """
    plan.operations = [make_operation(plan, index) for index in range(len(plan.graph.layers))]
    return plan


def make_operation(
    plan: Plan, index: int, sources: tuple[Storage, ...] | None = None, target: Storage | None = None
) -> Operation:
    """The operation of a layer that reads and writes storages like these, by default the whole tensors."""
    layer = plan.graph.layers[index]
    sources = sources or tuple(plan.storages[name] for name in layer.inputs)
    operation = _kind(plan, layer)(plan, index, sources, target or plan.storages[layer.output])
    if isinstance(layer, AveragePool) and layer.multipliers:
        return BorderedAverage(plan, operation)
    return operation


def _kind(plan: Plan, layer: Layer) -> type[Operation]:
    if not isinstance(layer, Convolution):
        return OPERATIONS[type(layer)]
    if is_depthwise(layer, plan.config, plan.graph.tensors[layer.output].shape[:2]):
        return DepthwiseOperation
    return ConvolutionOperation if layer.groups == 1 else GroupedConvolutionOperation
