"""Tiers: `make test` takes a sample of a sweep, and the shares of the rest hold every test once; skips."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cocotb_tests.support.checkout import ROOT
from cocotb_tests.support.sampling import chosen
from cocotb_tests.support.tiers import Share, unknown


@pytest.mark.parametrize("count", [1, 2, 20])
def test_every_test_is_in_one_share(count: int) -> None:
    names = [f"cocotb_tests/test_some.py::test_thing[{number}]" for number in range(300)]
    shares = [[name for name in names if Share(number, count).has(name)] for number in range(1, count + 1)]
    assert sorted(itertools.chain(*shares)) == sorted(names)
    assert all(shares)


def test_a_share_is_read() -> None:
    assert Share.parsed("20/20") == Share(20, 20)
    for text in ("0/20", "21/20", "3", "3/", "a/b", "-1/2"):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape(f"not {text}")):
            Share.parsed(text)


def test_a_sample_has_every_value_of_every_parameter() -> None:
    cases = [
        {"lanes": lanes, "order": order, "kind": kind} for lanes in range(4) for order in range(3) for kind in (0, 1)
    ]
    sample = [cases[place] for place in chosen(cases, None)]
    assert len(sample) == 4
    assert {item for case in sample for item in case.items()} == {item for case in cases for item in case.items()}
    assert chosen(cases, 9) == chosen(cases, None)


def test_a_sample_of_so_many_is_spaced() -> None:
    cases = [{"seed": seed} for seed in range(10)]
    assert chosen(cases, 1) == [0]
    assert chosen(cases, 3) == [0, 3, 6]
    assert chosen(cases, 10) == list(range(10))


def test_make_test_runs_the_sample_and_a_share_the_rest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.sampled
        @pytest.mark.parametrize("seed", range(2))
        @pytest.mark.parametrize("size", range(5))
        def test_swept(seed, size):
            pass

        @pytest.mark.regress
        def test_left():
            pass

        @pytest.mark.demo_core
        def test_on_the_core_of_the_demo():
            pass

        def test_plain():
            pass
        """
    )
    options = ("-p", "cocotb_tests.support.tiers", "-q")
    pytester.syspathinsert(ROOT)

    def passed(*selection: str) -> int:
        return pytester.runpytest_inprocess(*options, *selection).parseoutcomes().get("passed", 0)

    assert passed("-m", "not (regress or demo_core)") == 6
    assert passed("-m", "demo_core and not regress") == 1
    assert passed("-m", "regress") == 6
    assert sum(passed("-m", "regress", "--share", f"{number}/3") for number in (1, 2, 3)) == 6


# Skips: CI fails where the reason is not in the list.

TESTS = "import pytest\ndef test_runs(): pass\ndef test_is_left_out(): pytest.skip({reason!r})\n"


def run(folder: Path, reason: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_skipped.py").write_text(TESTS.format(reason=reason))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "cocotb_tests.support.tiers",
        "-c",
        os.devnull,
        "-q",
        "--rootdir",
        str(folder),
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, str(folder)], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_unknown_reason_fails(tmp_path: Path, workers: str) -> None:
    found = run(tmp_path, "the moon is full", "--known-skips", "-n", workers)
    assert found.returncode == pytest.ExitCode.TESTS_FAILED
    assert "skipped for a reason that support/tiers.py does not know: the moon is full" in found.stdout


def test_known_reasons_pass(tmp_path: Path) -> None:
    assert run(tmp_path, "a small disk needs the right to mount one", "--known-skips").returncode == pytest.ExitCode.OK


def test_nothing_fails_unless_asked(tmp_path: Path) -> None:
    assert run(tmp_path, "the moon is full").returncode == pytest.ExitCode.OK


def test_ci_asks() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert script.count("--known-skips") == script.count("PYTEST_OPTIONS=") == 4
    assert unknown(["the `synth` extra is not installed"]) == ["the `synth` extra is not installed"]
