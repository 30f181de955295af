"""The engines that compute windows: the one table of their hardware. See ``docs/adding-an-engine.md``."""

from ...golden.engines import ADD, BINARY_MAXIMUM, DEPTHWISE, FPC, MAC, MAXIMUM, MULTIPLY, WINOGRAD, XNOR
from .add import AddOperands
from .engine import EngineComponent
from .fpc import FastPointwise
from .mac_array import MacArray
from .maximum import Maximum
from .multiply import Multiply

__all__ = ["COMPONENTS"]

#: The component that stands for each code: an engine is one line here, see ``golden/engines/__init__.py``.
COMPONENTS: dict[int, type[EngineComponent]] = {
    MAC: MacArray,
    MAXIMUM: Maximum,
    DEPTHWISE: MacArray,
    XNOR: MacArray,
    FPC: FastPointwise,
    ADD: AddOperands,
    BINARY_MAXIMUM: Maximum,
    MULTIPLY: Multiply,
    WINOGRAD: MacArray,
}
