"""Traces of a model by ``torch.fx``, in which the layers of this package stay whole."""

from __future__ import annotations

from torch import fx, nn

from .binary import BinaryLayer
from .layer import FastPointwiseConv2d
from .sparse import SparseConv2d


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        own = isinstance(m, SparseConv2d | BinaryLayer | FastPointwiseConv2d)
        return own or super().is_leaf_module(m, module_qualified_name)


def trace(model: nn.Module, remedy: str) -> fx.Graph:
    """Trace a model.

    Raises
    ------
    ValueError
        If tracing fails, as where a branch depends on values; the message has a remedy.
    """
    try:
        return _Tracer().trace(model)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"model must be traceable by torch.fx, and is not: {str(error).splitlines()[0]}; {remedy}"
        ) from error
