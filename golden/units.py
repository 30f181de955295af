"""Queues and units of the core, and why a run stops. Standard library only."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """Why a run stopped."""

    NONE = 0
    ILLEGAL_OPCODE = 1
    ILLEGAL_ENGINE = 2
    ILLEGAL_FIELD = 3
    ADDRESS_RANGE = 4
    AXI_SLAVE = 5
    AXI_DECODE = 6
    WATCHDOG = 7
    TOKENS_LEFT = 8
    PROGRAM_END = 9
    OVERFLOW = 10


class Unit(enum.IntEnum):
    """Where a run stopped."""

    NONE = 0
    DMA_QUEUE = 1
    COMPUTE_QUEUE = 2
    PREFETCH = 3
    LOAD = 4
    STORE = 5
    FILL = 6
    FETCH = 7
    WRITE_BACK = 8
