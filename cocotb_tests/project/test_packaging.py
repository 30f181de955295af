"""Packaging: the wheel has everything that is imported, dependencies have reasons, nothing generated is tracked."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from cocotb_tests.support.checkout import PROJECT, PYPROJECT, ROOT, tracked

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
