"""The multiplier array: sums of products over lanes and steps, one for each column."""

from ..engine import Engine, EngineConfig

MAC = Engine(0, "MAC", configuration=EngineConfig)
