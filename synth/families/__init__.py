"""Device families: a file for each, with its devices, its primitives and its tools."""

from __future__ import annotations

from ..device import Device
from .ecp5 import Ecp5
from .family import Area, Family
from .gowin import Gowin

__all__ = ["DEVICES", "FAMILIES", "Area", "Family", "family_of"]

FAMILIES: dict[str, Family] = {family.name: family for family in (Ecp5(), Gowin())}
#: Devices for measurements, by name.
DEVICES: dict[str, Device] = {name: device for family in FAMILIES.values() for name, device in family.devices.items()}


def family_of(device: Device) -> Family:
    """Return the family of a device."""
    return FAMILIES[device.family]
