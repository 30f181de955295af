"""What the engines compute: the one table of their specifications."""

from __future__ import annotations

from . import find_engine
from .add.specification import SPECIFICATION as ADD
from .binary_maximum.specification import SPECIFICATION as BINARY_MAXIMUM
from .depthwise.specification import SPECIFICATION as DEPTHWISE
from .fpc.specification import SPECIFICATION as FPC
from .mac.specification import SPECIFICATION as MAC
from .maximum.specification import SPECIFICATION as MAXIMUM
from .multiply.specification import SPECIFICATION as MULTIPLY
from .specification import EngineSpecification
from .winograd.specification import SPECIFICATION as WINOGRAD
from .xnor.specification import SPECIFICATION as XNOR

#: By the engines' codes.
SPECIFICATIONS: dict[int, EngineSpecification] = {
    one.engine: one for one in (MAC, MAXIMUM, DEPTHWISE, XNOR, FPC, ADD, BINARY_MAXIMUM, MULTIPLY, WINOGRAD)
}


def specification(code: int) -> EngineSpecification:
    """What the engine with a code computes; ValueError if there is none."""
    return SPECIFICATIONS[find_engine(code)]
