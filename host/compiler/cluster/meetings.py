"""Meetings: proof that no core waits for ever for another one, and that none reads what another one is yet to store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....golden.isa import Opcode
from ....golden.memories import LocalMemory
from ....golden.units import Queue
from ..data.plan import Plan
from ..data.storage import Addresses, pieces
from ..schedule.rehearsal import rehearse


def check_meetings(plans: Sequence[Plan]) -> None:
    """All cores come to their end, see :func:`.rehearsal.rehearse`, and none reads what another one is yet to store."""
    rehearse(plans)
    check_arena(plans)


def check_arena(plans: Sequence[Plan]) -> None:
    """Where one core stores bytes that another one stores or loads, before or after, there is a barrier between both.

    All cores meet at every barrier, so what lies between two of them is an epoch, and what stands in one may happen in
    any order.
    """
    size, cores = plans[0].external_bytes, range(len(plans))
    counts = {sum(command.opcode is Opcode.BARRIER for command in plan.commands) for plan in plans}
    assert len(counts) == 1, f"cores with {counts} barriers"
    touched = [[*_epochs(plan)] for plan in plans]
    #: The last core that has stored each byte, and in which epoch; in which epoch each core has loaded it last.
    writer, written = np.full(size, -1), np.full(size, -1)
    loaded = np.full((len(plans), size), -1)
    for epoch in range(counts.pop() + 1):
        for core in cores:
            for addresses in touched[core][epoch][Opcode.STORE]:
                is_clear = (writer[addresses] == core) | (written[addresses] < epoch)
                assert is_clear.all(), f"core {core} stores what another one stores before barrier {epoch}"
                writer[addresses], written[addresses] = core, epoch
            for addresses in touched[core][epoch][Opcode.LOAD]:
                loaded[core][addresses] = epoch
        for core in cores:
            meets = (written == epoch) & (writer != core) & (loaded[core] == epoch)
            assert not meets.any(), f"core {core} loads what another one stores before barrier {epoch}"


def _epochs(plan: Plan) -> Iterator[dict[Opcode, list[Addresses]]]:
    """What a core loads and stores of the tensors in the arena, from each barrier to the next."""
    epoch: dict[Opcode, list[Addresses]] = {Opcode.LOAD: [], Opcode.STORE: []}
    for command in plan.queue(Queue.DMA):
        fields = command.fields
        if command.opcode is Opcode.BARRIER:
            yield epoch
            epoch = {Opcode.LOAD: [], Opcode.STORE: []}
        elif command.opcode is Opcode.STORE:
            epoch[Opcode.STORE].append(
                pieces(fields["external"], fields["row_bytes"], fields["rows"], fields["external_row"])
            )
        elif command.opcode is Opcode.LOAD and fields["memory"] == LocalMemory.FEATURE:
            size, pitch = fields["row_pieces"] * fields["piece_bytes"], fields.get("external_row", 0)
            epoch[Opcode.LOAD] += [
                pieces(fields["external"] + fold * fields.get("external_fold", 0), size, fields["rows"], pitch)
                for fold in range(fields["folds"])
            ]
    yield epoch
