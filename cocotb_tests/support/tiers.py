"""Tiers: what `make test` runs of a sweep, and which share of the rest a run takes.

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
from collections import defaultdict
from dataclasses import dataclass

import pytest

from cocotb_tests.support import extras
from cocotb_tests.support.sampling import chosen

MARKERS = (
    "regress: left out of `make test`; `make regress` runs it",
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


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def _needs_an_extra(item: pytest.Item) -> bool:
    return any(mark.kwargs.get("reason") in extras.REASONS for mark in item.iter_markers("skipif"))


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
