"""The maximum of binary values over the steps of a window, for every bit of a word: max pooling of packed maps."""

from ..engine import Engine, EngineConfig

BINARY_MAXIMUM = Engine(6, "BINARY_MAXIMUM", configuration=EngineConfig)
