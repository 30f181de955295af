"""XNOR-popcount: inner products of binary values, a bit for each, on the words and weights of the array."""

from ..engine import Engine, EngineConfig

XNOR = Engine(3, "XNOR", configuration=EngineConfig)
