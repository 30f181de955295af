"""A lock that threads get in the order in which they ask for it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator


class Turns:
    """Who has it may nest it. Python's own locks may go to the same thread again and again while others wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._queue: deque[object] = deque()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for this thread's turn, and have it until the end of the block."""
        me = threading.get_ident()
        if self._owner == me:
            yield
            return
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(lambda: self._owner is None and self._queue[0] is ticket)
                self._owner = me
            finally:
                # Also if the wait is interrupted: the next one may be waiting for this ticket.
                self._queue.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._owner = None
                self._changed.notify_all()
