"""ONNX's own backend tests, with their own runner: the cases of the documentation pass, or are refused as it says."""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Iterable

import pytest
from onnx.backend.test import BackendTest

from cocotb_tests.support.oracles.onnx_backend import PAGE, PASSED, REFUSED, SimulatedAccelerator, page


class Outcomes(unittest.TestResult):
    """What became of each case, by its name: "passed", or the traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.by_case: dict[str, str] = {}

    def _note(self, test: unittest.TestCase, outcome: str) -> None:
        self.by_case[test.id().rpartition(".")[2].removesuffix("_cpu")] = outcome

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._note(test, "passed")

    def addFailure(self, test: unittest.TestCase, err) -> None:  # noqa: N802
        self._note(test, str(err[1]))

    def addError(self, test: unittest.TestCase, err) -> None:  # noqa: N802
        self._note(test, f"{err[0].__name__}: {err[1]}")


def outcomes(cases: Iterable[str]) -> dict[str, str]:
    """Run cases. The runner first makes all that ONNX has, which takes half a minute."""
    result = Outcomes()
    with warnings.catch_warnings():
        # Of the cases' makers: casts and logarithms out of range.
        warnings.simplefilter("ignore")
        runner = BackendTest(SimulatedAccelerator, __name__)
        for case in cases:
            runner.include(f"^{case}_cpu$")
        runner.test_suite.run(result)
    return result.by_case


@pytest.mark.regress
def test_cases_end_as_the_page_says() -> None:
    passed = {case for cases in PASSED.values() for case in cases}
    refused = {case: message for cases, _, message in REFUSED.values() for case in cases}
    found = outcomes([*passed, *refused])
    assert found.keys() == passed | refused.keys()
    assert {case: found[case] for case in passed} == dict.fromkeys(passed, "passed")
    for case, message in refused.items():
        assert found[case].startswith("ModelError: "), found[case]
        assert message in found[case]


def test_the_page_is_what_is_tested() -> None:
    assert PAGE.read_text() == page(), "run `python -m cocotb_tests.support.oracles.onnx_backend`"
