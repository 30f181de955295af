"""What `--device` names: a board at a serial port, or an accelerator on this machine's own bus."""

from __future__ import annotations

from ... import link, uio
from ...link.transport import SCHEME as SERIAL
from ...uio.transport import SCHEME as MAPPED

#: As help and messages say it.
FORMS = f"{SERIAL}PORT or {MAPPED}DEVICE,BUFFER"
_OPENERS = {SERIAL: link.open_device, MAPPED: uio.open_device}


def open_device(name: str) -> link.LinkTransport | uio.UioTransport:
    """The accelerator of a name; to be closed.

    Raises
    ------
    ValueError
        If it is no such name.
    LinkError, PortError, UioError
        If it cannot be reached.
    """
    for scheme, opener in _OPENERS.items():
        if name.startswith(scheme):
            return opener(name)
    raise ValueError(f"device must be {FORMS}, not {name}")


def check_serial(name: str) -> None:
    """Refuse what has no serial link.

    Raises
    ------
    ValueError
        If the name is not one of a serial port.
    """
    if name.startswith(MAPPED):
        raise ValueError(
            f"device must be {SERIAL}PORT, not {name}: selftest is for a board at a serial port; use verify --device"
        )
