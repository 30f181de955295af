"""Name the packages: each folder of the project, and all below it, is a package of ``lutterfly``."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
FOLDERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values()

setup(
    packages=[
        f"lutterfly.{name}"
        for name in find_packages(str(ROOT), include=[pattern for one in FOLDERS for pattern in (one, f"{one}.*")])
    ]
)
