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
        # One block for waiting and having: an interrupt from the keyboard may come anywhere in it.
        try:
            with self._changed:
                self._queue.append(ticket)
                self._changed.wait_for(lambda: self._owner is None and self._queue[0] is ticket)
                self._queue.popleft()
                self._owner = me
            yield
        finally:
            with self._changed:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                if self._owner == me:
                    self._owner = None
                self._changed.notify_all()
