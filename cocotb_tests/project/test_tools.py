"""What sets up, packs and breaks the project: Makefile, packaging, mutants, and the kept runtime of simulators."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from cocotb_tests.support import components
from cocotb_tests.support.checkout import PROJECT, PYPROJECT, ROOT, tracked
from tools.mutation import mutants, workplace

HEAD = "Lutterfly needs, and this machine lacks:"


def requirements(folder: Path, *programs: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run `make requirements` where only ``programs`` are installed."""
    for program in programs:
        (folder / program).symlink_to(shutil.which(program))
    command = [shutil.which("make"), "-C", ROOT, "--no-print-directory", "requirements", f"PYTHON={python}"]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, timeout=60, check=False)


def test_a_complete_machine_passes_without_a_word(tmp_path: Path):
    result = requirements(tmp_path, "g++", "make", "perl")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_all_missing_programs_are_named_at_once(tmp_path: Path):
    result = requirements(tmp_path, "make", python="nopython")
    assert result.returncode == 2
    python = "  Python 3.11 or later (as nopython; another one: make PYTHON=python3.12)"
    assert result.stderr.splitlines()[:4] == [HEAD, "  g++", "  perl", python]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("exit 1", "  Python 3.11 or later ({python} is older; another one: make PYTHON=python3.12)"),
        ('case "$2" in *venv*) exit 1;; esac', "  Python's venv (on Debian and Ubuntu: apt install python3-venv)"),
    ],
)
def test_a_python_that_does_not_serve_is_named(tmp_path: Path, body: str, line: str):
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{body}\n")
    python.chmod(0o755)
    result = requirements(tmp_path, "g++", "make", "perl", python=str(python))
    assert result.stderr.splitlines()[:2] == [HEAD, line.format(python=python)]


@pytest.mark.parametrize("script", ["exit 100", "echo noise; echo trouble >&2"])
def test_a_browser_that_cannot_be_installed_is_no_failure(tmp_path: Path, script: str):
    for program in ("make", "sh", "timeout", "env"):
        (tmp_path / program).symlink_to(shutil.which(program))
    for name, body in (("id", "echo 0"), ("apt-get", f'echo "$*" >> {tmp_path}/asked; {script}')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    command = [shutil.which("make"), "-C", ROOT, "--no-print-directory", "browser"]
    result = subprocess.run(
        command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "Installing Chromium, to open reports in: about a minute, once\n"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "update -qq"
    # An update that fails is the end.
    assert asked[1:] == ([] if "exit" in script else ["install -y -qq --no-install-recommends chromium"])


# Packaging: the wheel has everything that is imported, dependencies have reasons, nothing generated is tracked.

FOLDERS = PROJECT["tool"]["setuptools"]["package-dir"].values()
GENERATED = (
    *("*.v", "*.sv", "*.vcd", "*.fst", "*.o", "*.a", "*.so", "*.pyc", "*.bit", "*.log"),
    *("*.egg-info/*", "build/*", "dist/*", "*obj_dir/*", "*sim_build/*", ".venv/*", "*_cache/*"),
)


def test_every_folder_with_modules_is_a_package() -> None:
    """setup.py finds packages by their ``__init__.py``: a folder without one works here, and is not in the wheel."""
    folders = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    assert len(folders) > 40
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_every_data_file_is_shipped() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    data = [Path(name) for name in tracked() if name.split("/")[0] in FOLDERS and not name.endswith(".py")]
    assert [str(path) for path in data if not any(path.match(pattern) for pattern in patterns)] == []
    assert [pattern for pattern in patterns if not any(path.match(pattern) for path in data)] == []


def test_every_dependency_has_its_reason_beside_it() -> None:
    lists = {"dependencies": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}
    for name, requirements in lists.items():
        lines = re.search(rf"^{name} = \[\n(.*?)^\]", PYPROJECT, re.DOTALL | re.MULTILINE)[1].splitlines()
        assert len(lines) == len(requirements), f"{name}: each on a line of its own"
        assert [line for line in lines if not re.search(r'",\s+# \S', line)] == []


def test_nothing_generated_is_tracked() -> None:
    assert [name for name in tracked() if any(fnmatch(name, pattern) for pattern in GENERATED)] == []


# Mutants: each place of the list is found, and what they make of a file is Python that differs from what is there.


@functools.cache
def meaning(file: str) -> str:
    return ast.dump(ast.parse((mutants.ROOT / file).read_text()))


@pytest.mark.regress
def test_every_listed_place_is_found_once() -> None:
    listed = mutants.listed()
    assert len({mutant.name for mutant in listed}) == len(listed) > 0
    python = [mutant for mutant in listed if mutant.file.endswith(".py")]
    assert [mutant.name for mutant in python if ast.dump(ast.parse(mutant.text)) == meaning(mutant.file)] == []


def test_what_operators_give_differs() -> None:
    for folder in mutants.FOLDERS:
        # Some places of one file tell as much as all, which take a minute.
        found = next(found for file in mutants.files(folder, ".py") if len(found := mutants.generated(file)) > 5)[:30]
        assert len({mutant.name for mutant in found}) == len(found)
        assert [mutant.name for mutant in found if ast.dump(ast.parse(mutant.text)) == meaning(mutant.file)] == []


# Simulators of components: what they share is never that of other tests.


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


def test_the_tiers_of_mutations_have_every_test() -> None:
    """The tier `test` is what pytest runs unasked, and the tier `regress` all others."""
    *_, test, regress = workplace.runs_for("golden/isa.py", workplace.TIERS, jobs=1)
    assert test.arguments[-1] == PROJECT["tool"]["pytest"]["ini_options"]["addopts"][-1]
    assert test.arguments[-1] == f"not ({regress.arguments[-1]})"
