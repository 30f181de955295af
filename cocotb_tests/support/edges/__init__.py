"""The limits of every command: programs at the last legal value and at the first illegal one."""

from __future__ import annotations

from collections.abc import Iterator

from cocotb_tests.support.edges.address_edges import compute_addresses, constants
from cocotb_tests.support.edges.case import Case
from cocotb_tests.support.edges.command_edges import counts, engines
from cocotb_tests.support.edges.queue_edges import headers, programs
from cocotb_tests.support.edges.transfer_edges import transfers
from lutterfly.golden.config import Config


def cases(config: Config) -> Iterator[Case]:
    """All of them, for one configuration."""
    for limits in (headers, programs, counts, engines, compute_addresses, constants, transfers):
        yield from limits(config)
