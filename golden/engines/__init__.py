"""The engines: the one table of what they are. See ``docs/adding-an-engine.md``."""

from __future__ import annotations

from ..config import Config
from ..isa import LocalMemory
from ..memories import MEMORIES, SHARED
from .add import ADD
from .binary_maximum import BINARY_MAXIMUM
from .depthwise import DEPTHWISE
from .engine import EngineSpecification
from .fpc import FPC
from .mac import MAC
from .maximum import MAXIMUM
from .xnor import XNOR

#: An engine is one line here, and one in the table of ``hdl/engines/__init__.py``.
ENGINES: dict[int, EngineSpecification] = {
    engine.code: engine for engine in (MAC, MAXIMUM, DEPTHWISE, XNOR, FPC, ADD, BINARY_MAXIMUM)
}


def specification(code: int) -> EngineSpecification:
    """The engine with a code.

    Raises
    ------
    ValueError
        If there is none.
    """
    if code not in ENGINES:
        known = ", ".join(f"{int(engine.code)} ({engine.code.name})" for engine in ENGINES.values())
        raise ValueError(f"engine must be one of {known}, not {code}")
    return ENGINES[code]


def memories(config: Config) -> list[LocalMemory]:
    """The memories that a core has: the shared ones, and those of its engines."""
    built = {*SHARED, *(ENGINES[code].memory(config) for code in config.engines)}
    return [memory for memory in MEMORIES if memory in built]
