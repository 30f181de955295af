"""Names of the accelerator's pins, by which simulators and integrators' scripts connect them."""

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
#: Prefix of the AXI4 master, the memory; a number follows where there are several.
MASTER = "m_axi"
#: Prefix of the pins of a core for a simulator's trace; a number follows where there are several.
TRACE = "trace"

#: Name of the enable of parts whose clock is gated in a simulation while they are not used.
AWAKE = "awake"


def masters(cluster: ClusterConfig) -> list[str]:
    """Return the prefix of each port to the memory."""
    return numbered(MASTER, cluster.ports)


def traces(cluster: ClusterConfig) -> list[str]:
    """Return the prefix of each core's trace."""
    return numbered(TRACE, cluster.cores)


def numbered(name: str, count: int) -> list[str]:
    """Return a name for each, with numbers where there are several."""
    return [name] if count == 1 else [f"{name}_{number}" for number in range(count)]
