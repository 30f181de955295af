"""Files that users hand in, read as a whole."""

from __future__ import annotations

from pathlib import Path


def read_file(path: str | Path) -> bytes:
    """The bytes of a file or a pipe.

    Raises
    ------
    ValueError
        If it cannot be read, or is a device, which may never end; the message names it.
    """
    try:
        if Path(path).is_char_device() or Path(path).is_block_device():
            raise ValueError(f"{path}: must be a file that can be read: it is a device")
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: must be a file that can be read: {error.strerror}") from error
