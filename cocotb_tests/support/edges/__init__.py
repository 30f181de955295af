"""The limits of every command: programs at the last legal value and at the first illegal one."""

from __future__ import annotations

from collections.abc import Iterator

from edges.address_edges import compute_addresses, constants
from edges.case import Case
from edges.command_edges import counts, engines
from edges.queue_edges import headers, programs
from edges.transfer_edges import transfers
from lutterfly.golden.config import Config


def cases(config: Config) -> Iterator[Case]:
    """All of them, for one configuration."""
    for limits in (headers, programs, counts, engines, compute_addresses, constants, transfers):
        yield from limits(config)
