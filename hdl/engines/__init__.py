"""The engines that compute windows: the one table of their hardware. See ``docs/adding-an-engine.md``."""

from ...golden import isa
from .add_operands import AddOperands
from .engine import EngineComponent
from .fpc import FastPointwise
from .mac_array import MacArray
from .maximum import Maximum

__all__ = ["COMPONENTS"]

#: The component that stands for each code: an engine is one line here, and one in ``golden/engines/__init__.py``.
COMPONENTS: dict[int, type[EngineComponent]] = {
    isa.Engine.MAC: MacArray,
    isa.Engine.MAXIMUM: Maximum,
    isa.Engine.DEPTHWISE: MacArray,
    isa.Engine.XNOR: MacArray,
    isa.Engine.FPC: FastPointwise,
    isa.Engine.ADD: AddOperands,
    isa.Engine.BINARY_MAXIMUM: Maximum,
}
