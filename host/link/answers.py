"""Answers: what a board says, and what is wrong with it, in words."""

from __future__ import annotations

from ...golden.link.frames import INITIAL_RATE, Frame, Identity
from ...golden.link.operations import LINK_VERSION, MAX_DATA, Operation, Status
from .errors import LinkError

_AGAIN = "generate the board's bitstream again with this release"
_MEANINGS: dict[int, str] = {
    Status.UNKNOWN_OPERATION: f"does not know the operation {{operation}}; {_AGAIN}",
    Status.LENGTH: f"refuses a length of {{length}} for {{operation}}; {_AGAIN}",
    Status.ADDRESS: f"has nothing at {{address:#x}} for {{length}} bytes; {_AGAIN}",
    Status.REGISTER_REFUSED: f"refuses access to register {{address:#x}}; {_AGAIN}",
    Status.SEQUENCE: "was asked by somebody else meanwhile; end other programs that use the port",
    Status.RATE: f"refuses a rate that its clock can make; {_AGAIN}",
}


def result(name: str, request: Frame, answer: Frame) -> bytes:
    """The data of an answer.

    Parameters
    ----------
    name : str
        Of the line, for messages.
    request, answer : Frame

    Raises
    ------
    LinkError
        If the request was refused.
    """
    if answer.status == Status.OK:
        return answer.data
    meaning = _MEANINGS.get(answer.status, f"answers with the status {answer.status}; {_AGAIN}")
    operation = Operation(request.operation).name
    raise LinkError(
        f"{name}: the board {meaning.format(operation=operation, address=request.address, length=request.length)}"
    )


def identity(name: str, answer: Frame) -> Identity:
    """What a board says of itself.

    Raises
    ------
    LinkError
        If it speaks another version of the link.
    """
    try:
        found = Identity.parse(result(name, answer, answer))
    except ValueError:
        found = Identity(0, 0, 0, 0, 0)
    if found.link_version != LINK_VERSION or found.max_data < MAX_DATA or not found.clock_hz:
        raise LinkError(
            f"{name}: the board must speak version {LINK_VERSION} of the link, not {found.link_version}; {_AGAIN}"
        )
    return found


def silence(name: str, heard: int, waited_s: float) -> str:
    """What to say if no frame has come, but perhaps other bytes."""
    if heard:
        return (
            f"{name}: a board must answer in frames at {INITIAL_RATE} bits a second, and {heard} bytes came that are "
            "none; check that the port is the board's, and that the board holds a bitstream of `lutterfly bitstream`"
        )
    return (
        f"{name}: a board must answer within {waited_s:.0f} s, and does not; check that it is on, that the port is its "
        "own, and that it holds a bitstream of `lutterfly bitstream`"
    )
