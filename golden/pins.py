"""Names of the accelerator's pins: what the hardware has, and what simulators and scripts for integrators connect."""

from __future__ import annotations

from .config_parts import ClusterConfig

#: Name of the accelerator's module.
MODULE = "lutterfly"
CLOCK = "aclk"
#: Active low.
RESET = "aresetn"
INTERRUPT = "interrupt"
#: Prefix of the AXI4-Lite slave, the registers.
SLAVE = "s_axi"
#: Prefix of the AXI4 master, the memory; with a number behind it where there are several.
MASTER = "m_axi"
#: Prefix of the pins of a core for a simulator's trace, likewise.
TRACE = "trace"

#: Name of the enable of parts that stand still in a simulation while nobody uses them.
AWAKE = "awake"


def masters(cluster: ClusterConfig) -> list[str]:
    """The prefix of each port to the memory."""
    return numbered(MASTER, cluster.ports)


def traces(cluster: ClusterConfig) -> list[str]:
    """The prefix of each core's trace."""
    return numbered(TRACE, cluster.cores)


def numbered(name: str, count: int) -> list[str]:
    """A name for each, with numbers where there are several."""
    return [name] if count == 1 else [f"{name}_{number}" for number in range(count)]
