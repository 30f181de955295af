"""Skips: a test that is left out in silence is a hole. CI knows which may be, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

#: What a machine may lack although `make test` has set up all that it can.
KNOWN = (
    r"needs PyTorch: make test-train",
    r"the models' folder .* does not exist; name another one with --models",
    r"none of chromium, .* is installed; `make regress` as root installs it on Debian",
    r"a small disk needs the right to mount one",
    r"this system has no /dev/full",
    # There is no wheel of it for Linux on other processors than x86-64.
    r"the `board` extra is not installed",
    r"this Lutterfly comes from a package index",
    r"not a Git checkout: nobody can say which files are tracked",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--known-skips", action="store_true", help="fail where a test is skipped for a reason that is not listed"
    )


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test was skipped."""
    _, _, text = report.longrepr
    return text.removeprefix("Skipped: ").removeprefix("could not import 'torch': ")


def unknown(reasons: Iterable[str]) -> list[str]:
    """Those that are not in the list, each once."""
    return [text for text in dict.fromkeys(reasons) if not any(re.fullmatch(known, text) for known in KNOWN)]


def _unknown_of(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    # Under pytest-xdist all reports reach the process that reports; the others have none.
    skipped = reporter.stats.get("skipped", []) if config.getoption("--known-skips") and reporter else []
    return unknown(map(reason, skipped))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _unknown_of(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    for text in _unknown_of(config):
        terminalreporter.write_line(
            f"skipped for a reason that support/oracles/skips.py does not know: {text}", red=True
        )
