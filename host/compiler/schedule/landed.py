"""What has landed: whether a COMPUTE command has to wait for earlier results, or comes late enough to read them."""

from __future__ import annotations

import numpy as np

from ....golden.engines import format_of, specification_of
from ....golden.isa import LIST_ENTRY_BYTES
from ....golden.machine.landings import EarlyReads, Landings
from ....golden.memories import LocalMemory
from ....golden.numerics import windows
from ..data.command import Command
from ..data.plan import Plan


class Landed:
    """The compute queue of a plan on the timeline of what a program may rely on, see :mod:`golden.timing.landing`.

    Commands of both queues are taken in an order in which they could run one by one.

    Parameters
    ----------
    plan : Plan
        Its constants are in their places.
    """

    def __init__(self, plan: Plan):
        self._plan = plan
        self._landings = Landings(plan.config)
        self._entries = np.zeros(plan.config.memory.list_entries, np.uint32)
        #: When each command so far is complete, as verification sees it.
        self._complete: list[int] = []
        self._list(plan.images.get(LocalMemory.LIST, b""), 0)

    def load(self, command: Command) -> None:
        """Take a LOAD: step lists may come in every inference."""
        fields = command.fields
        if fields.get("memory") is LocalMemory.LIST:
            first = fields["external"] - self._plan.streamed_address
            self._list(self._plan.streamed[first : first + fields["piece_bytes"]], fields["local"])

    def needs_after(self, command: Command, compared: int) -> bool:
        """Take a COMPUTE command, and tell whether it has to wait for all before it.

        ``compared`` is the latest command after which verification compares what this one writes, -1 if there is none.
        """
        fields = dict.fromkeys((field.name for field in format_of(command.opcode, command.fields["engine"]).fields), 0)
        fields |= command.fields
        issued, early = self._landings.foresee(fields, after=False)
        needs = compared >= 0 and self._complete[compared] > issued.begin
        needs = needs or self._reads_too_early(fields, early, command)
        if needs:
            issued, _ = self._landings.foresee(fields, after=True)
        self._landings.issue(fields, issued)
        self._complete.append(issued.complete)
        return needs

    def _reads_too_early(self, fields: dict[str, int], early: EarlyReads, command: Command) -> bool:
        """Whether a byte whose contents matter may be read before it has landed: in any word that holds it."""
        number = early.windows
        if not len(number):
            return False
        config = self._plan.config
        size, read = config.memory.feature_bytes, specification_of(fields["engine"]).issue.steps_read(fields, config)
        offsets = windows.step_offsets(fields, self._entries, feature_bytes=size)
        starts = windows.loop_addresses(fields, "source").reshape(-1)[number, None] + offsets
        addresses = (starts[..., None] + np.arange(config.array.lanes)) % size
        matters, reads = np.zeros(size, np.bool_), command.reads
        matters[reads[reads < size]] = True
        too_early = early.too_early(addresses, early.cycles(fields, number)) & matters[addresses]
        return bool(too_early[:, :read].any())

    def _list(self, image: bytes, address: int) -> None:
        entries = np.frombuffer(image, "<u4")
        self._entries[address // LIST_ENTRY_BYTES :][: len(entries)] = entries
