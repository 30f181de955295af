"""Overheads: cycles between events on the ideal bus, as measured on the hardware."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Overheads:
    """Cycles between events on the ideal bus, as measured on the hardware.

    Attributes
    ----------
    start : int
        From the start of a run, with the program resident, to the first command at a unit.
    finish : int
        From the completion of the last command to the end of the run.
    token : int
        From the completion of a command to the first cycle of a command of the other queue that waited for it.
    turn : int
        From the completion of a command of the DMA queue to the first cycle of another one that waited for it.
    intake : int
        From a COMPUTE command at its unit to the begin of its walk.
    issue : int
        From there to its first issue.
    command : int
        To check and offer a command, beside one cycle for each word in which it is read.
    completion : int
        From the issue that could read a command's last result to its completion, as the queue sees it.
    read_latency : int
        From a read address on the bus to its first beat.
    bursts : int
        Bursts that the memory takes before it has answered the first of them, of reads and of writes.
    write_latency : int
        From the last beat of a write to its response.
    load : int
        From a LOAD at its unit to its first read address, beside one cycle for each bit of `row_pieces`.
    load_write : int
        From a beat on the bus to the write of what it brings.
    fill_write : int
        From a FILL at its unit to its first write.
    write_finish : int
        From the last write of a LOAD or FILL to its completion.
    write_lead : int
        From a write of a LOAD or FILL as this counts it, to the issue that could read what a result written in the same
        cycle holds.
    next_pieces : int
        From the last piece of a LOAD or FILL to the first one of the next, where nothing is waited for.
    store : int
        From a STORE at its unit to its first read.
    read_lead : int
        From the issue of a step to a STORE's read that would reach the memory in the same cycle.
    store_beat : int
        From a STORE's read to its beat on the bus.
    restore : int
        From the answer to a STORE's burst to the first read of another one that it has held up.
    store_room : int
        From where the last row of a STORE is walked to the begin of the command after the next one.
    store_finish : int
        From the answer to its last burst to the completion of a STORE.
    first_fetch : int
        From the start of a run to where a ring looks for room.
    fetch : int
        From where a ring finds room for a command, for which it looks every other cycle, to the request of a burst.
    read_next : int
        From a word of a command that leaves for the queue to where another one, which is read then, leaves room.
    read_first : int
        From the last word of a command on the bus to where it leaves room, if the queue waits for it.
    leave : int
        From a beat on the bus to where its leaving the queue of beats leaves room, where nothing waits.
    leave_late : int
        From a write that waited for results to where a beat leaves room that could not go on before.
    reload : int
        From the end of a LOAD's burst to a request of another one that it has held up.
    refetch : int
        From the end of a burst of commands to a request that it has held up.
    fetched : int
        From the last word of a command on the bus to the command at its unit.
    barrier : int
        From a BARRIER at its unit to its completion, if all others of the group are there.
    shared_answer : int
        Cycles that an arbiter adds to the answer to a read.
    shared_write : int
        From the last beat of a burst at an arbiter to its first one at the pins.
    shared_room : int
        From a beat that leaves an arbiter to a STORE's read that it has held up.
    """

    start: int = 4
    finish: int = 6
    token: int = 4
    turn: int = 3
    intake: int = 2
    issue: int = 6
    command: int = 5
    completion: int = 1
    read_latency: int = 40
    bursts: int = 8
    write_latency: int = 40
    load: int = 10
    load_write: int = 7
    fill_write: int = 10
    write_finish: int = 5
    write_lead: int = 3
    next_pieces: int = 3
    store: int = 9
    read_lead: int = 2
    store_beat: int = 5
    restore: int = 7
    store_room: int = 2
    store_finish: int = 5
    first_fetch: int = 2
    fetch: int = 4
    read_next: int = 3
    read_first: int = 6
    reload: int = 3
    leave: int = 2
    leave_late: int = 8
    refetch: int = 4
    fetched: int = 12
    barrier: int = 4
    shared_answer: int = 1
    shared_write: int = 3
    shared_room: int = 7


OVERHEADS = Overheads()
