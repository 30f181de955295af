"""Simulators of components: what they share is never that of other tests."""

from __future__ import annotations

import pytest

from cocotb_tests.support import components


def test_what_is_shared_is_found_by_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache outlives the tests: an earlier version had no precompiled headers under the same flags."""
    keys = {components.runtime_key(["-O1"]), components.runtime_key(["-O0"])}
    monkeypatch.setattr(components, "RUNTIME_HEADERS", "#include <verilated.h>\n")
    keys.add(components.runtime_key(["-O1"]))
    monkeypatch.setattr(components, "_keep_runtime", components.runtime_key)
    keys.add(components.runtime_key(["-O1"]))
    monkeypatch.setattr(components, "RUNTIME_HEADER", "shared.h")
    keys.add(components.runtime_key(["-O1"]))
    assert len(keys) == 5
