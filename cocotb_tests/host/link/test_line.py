"""Serial lines: why a port cannot be opened."""

from __future__ import annotations

import errno

import pytest

from lutterfly.host.transports.line import _reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EBUSY, "Device or resource busy"), "must be free, and another program uses it"),
        (ValueError("Could not exclusively lock port"), "must be free, and another program uses it"),
        (OSError(errno.EACCES, "Permission denied"), "must be open to this user, and is not; join the group"),
    ],
    ids=["busy", "locked", "another user's"],
)
def test_the_reason_is_the_cause(error: Exception, reason: str) -> None:
    assert _reason("/dev/port", error).startswith(f"/dev/port: {reason}")
