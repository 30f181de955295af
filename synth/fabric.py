"""Multipliers of blocks and of look-up tables: a device that lacks the first gets the rest of the others."""

from __future__ import annotations

from ..golden.config import Config
from ..hdl.engines.multipliers import weighed_columns
from .device import Device

__all__ = ["fabric_columns", "multipliers"]


def multipliers(config: Config) -> int:
    """Multipliers of an accelerator: those of the array, engines' own, and one for each lane of the requantiser."""
    array = config.array
    own = sum(engine.own_columns(array) for engine in config.engines.values())
    return config.cores * (array.lanes * (array.columns + own) + array.requant_lanes)


def fabric_columns(config: Config, device: Device) -> int:
    """Columns of each core's array whose multipliers have to be look-up tables, as few as the device's blocks permit.

    Not those to which another engine gives weights of its own, which are wider.
    """
    lacking = max(multipliers(config) - device.dsp, 0)
    return min(-(-lacking // (config.cores * config.array.lanes)), config.array.columns - weighed_columns(config))
