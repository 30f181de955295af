"""Products of two operands, each less its zero point."""

from ..engine import Engine, EngineConfig
from .fields import FIELDS

MULTIPLY = Engine(7, "MULTIPLY", configuration=EngineConfig, fields=FIELDS)
