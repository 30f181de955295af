"""The engines that compute windows: the one table of their hardware. See ``docs/adding-an-engine.md``."""

from ...golden.engines import ADD, BINARY_MAXIMUM, FPC, MAXIMUM, MULTIPLY
from .add import AddOperands
from .engine import EngineComponent
from .fpc import FastPointwise
from .mac_array import MacArray
from .maximum import Maximum
from .multiply import Multiply
from .stages import STAGES

__all__ = ["COMPONENTS"]

#: The component that implements each engine code. An engine is one line here, or one in ``stages.py`` if it works in
#: the multiplier array; see ``golden/engines/__init__.py``.
COMPONENTS: dict[int, type[EngineComponent]] = {
    **dict.fromkeys(STAGES, MacArray),
    MAXIMUM: Maximum,
    FPC: FastPointwise,
    ADD: AddOperands,
    BINARY_MAXIMUM: Maximum,
    MULTIPLY: Multiply,
}
