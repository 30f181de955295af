"""What components are elaborated for: a simulation with assertions, an FPGA with its primitives, or neither."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ASSERTED", "ECP5", "GENERIC", "SIMULATED", "Platform", "platform_of"]


@dataclass(frozen=True, slots=True)
class Platform:
    """What ``elaborate`` of a component is given; ports and latencies are the same for all.

    Attributes
    ----------
    is_asserted : bool
        With assertions (:mod:`.assertions`): for a simulation.
    sleeps : bool
        With parts that stand still while nobody uses them (:mod:`.sleep`): for a simulation that is to be fast.
    has_ecp5_primitives : bool
        With primitives of an ECP5 instead of generic bodies.
    is_pumped : bool
        Each two columns of the multiplier array have the multipliers of one, which work twice a cycle
        (:mod:`.pumped_multipliers`): for a device that has too few. There is a second clock then.
    """

    is_asserted: bool = False
    sleeps: bool = False
    has_ecp5_primitives: bool = False
    is_pumped: bool = False


GENERIC = Platform()
ASSERTED = Platform(is_asserted=True)
SIMULATED = Platform(is_asserted=True, sleeps=True)
ECP5 = Platform(has_ecp5_primitives=True)


def platform_of(platform: object) -> Platform:
    """What ``elaborate`` was given, or the generic platform for anything that is not ours, as Amaranth's None."""
    return platform if isinstance(platform, Platform) else GENERIC
