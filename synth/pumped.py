"""Multipliers that work twice a cycle: where a device has too few blocks."""

from __future__ import annotations

from ..golden.config import Config
from .device import Device

__all__ = ["is_pumped", "multipliers"]


def multipliers(config: Config) -> int:
    """Multipliers of an accelerator: those of the array, engines' own, and one for each lane of the requantiser."""
    array = config.array
    own = sum(engine.own_columns(array) for engine in config.engines.values())
    return config.cores * (array.lanes * (array.columns + own) + array.requant_lanes)


def is_pumped(config: Config, device: Device) -> bool:
    """Whether multipliers of the array have to work for two columns each, because the device has too few blocks."""
    return config.array.columns > 1 and multipliers(config) > device.dsp
