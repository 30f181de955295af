"""The greatest byte of each lane over the steps of a window: max pooling, and with one step a plain copy."""

from ..engine import Engine, EngineConfig

MAXIMUM = Engine(1, "MAXIMUM", configuration=EngineConfig)
