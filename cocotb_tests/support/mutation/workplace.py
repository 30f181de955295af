"""Where mutants are tried: a copy of the tree with one of them in it, and the tests that run there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mutation import mutants
from mutation.mutant_results import Result
from mutation.mutant_tests import SWEPT, runs_for
from mutation.mutants import HARDWARE, ROOT, Mutant

from lutterfly.host.simulation.cache import PARTIAL, default_root

#: What is imported as a part of the package, and what tests read beside.
FOLDERS = ("golden", "hdl", "boards", "synth", "host", "examples")
BESIDE = ("cocotb_tests", "docs", "train", "bench")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
#: Bounded waits of the tests themselves must end a hang; what is ended here was not noticed.
LIMIT_SECONDS = 3600
#: The same, for what simulates little: a test that takes longer than the first ends itself, and has noticed.
TEST_SECONDS, SOFTWARE_LIMIT_SECONDS = 180, 1200
#: What compiles simulators: what it leaves in a cache may be wrong.
BUILDING = "host/simulation/"
#: An error on the way to the simulation, not in it.
ERROR_PLACE = re.compile(r"^/\S*/(?:amaranth|hdl)/\S+\.py:\d+: ", re.MULTILINE)
#: The preset of which multipliers work twice a cycle.
_PUMPED = "ecp5-85k-256"
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
FAILED_INSIDE = re.compile(r"(test_\w+\.\S+(?: .*)?) failed")


class Workplace:
    """A folder for the copy of the tree and for the simulators that are built for it."""

    def __init__(self, folder: Path, models: Path, *, passing: bool):
        self.folder = folder
        self.models = models
        self.passing = passing
        self.cache = folder / "cache"
        self.last: Mutant | None = None
        # What every design shares need not be compiled again; what is being built will have another name.
        for shared in (default_root() / "cocotb").glob("runtime-*/"):
            if PARTIAL not in shared.name:
                shutil.copytree(shared, self.cache / "lutterfly" / "cocotb" / shared.name)
        # Nor need the simulators, which are found by their hardware, for mutants that leave it as it is.
        self.kept = folder / "kept"
        if (default_root() / "simulator").exists():
            ignore = shutil.ignore_patterns(f"*{PARTIAL}*")
            shutil.copytree(default_root() / "simulator", self.kept / "lutterfly" / "simulator", ignore=ignore)
        self.passes: set[tuple[str, str]] = set()
        self.digests: dict[str, str | None] = {}

    def copy(self, mutant: Mutant | None) -> Path:
        """A fresh copy of the tree, with the mutant in it."""
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        if mutant is not self.last:
            for built in self.cache.glob("lutterfly/*/*/"):
                if "runtime-" not in built.name:
                    shutil.rmtree(built)
            self.last = mutant
        # With what Python has compiled, which it takes where the source is as old as it was then.
        for name in (*FOLDERS, *BESIDE):
            shutil.copytree(ROOT / name, tree / name)
        for name in FILES:
            shutil.copy(ROOT / name, tree)
        # Before the installed package, which is the checkout.
        (tree / "packages" / "lutterfly").mkdir(parents=True)
        for name in FOLDERS:
            (tree / "packages" / "lutterfly" / name).symlink_to(tree / name)
        if mutant is not None:
            (tree / mutant.file).write_text(mutant.text)
        return tree

    def _environment(self, tree: Path) -> dict[str, str]:
        is_kept = self.last is None or not self.last.file.startswith((*HARDWARE, BUILDING))
        return os.environ | {
            "PYTHONPATH": str(tree / "packages"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "XDG_CACHE_HOME": str(self.kept if is_kept else self.cache),
            "COCOTB_MAX_FAILURES": "1",
        }

    def run(self, tree: Path, tests: Sequence[str], selected: str) -> tuple[int | None, str]:
        """Run tests in ``tree`` until one fails; the exit code, None if they did not end, and what they printed."""
        is_software = self.last is not None and not self.last.file.startswith(HARDWARE)
        options = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider", "--quick-build", f"--models={self.models}"]
        command = [sys.executable, "-m", "pytest", *tests, *options]
        if selected:
            command += ["-m" if selected == SWEPT else "-k", selected]
        if is_software:
            command += ["-o", f"faulthandler_timeout={TEST_SECONDS}"]
        with tempfile.TemporaryFile("w+", dir=self.folder) as output:
            process = subprocess.Popen(
                [*command, f"--basetemp={self.folder / 'pytest'}"],
                cwd=tree,
                env=self._environment(tree),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(SOFTWARE_LIMIT_SECONDS if is_software else LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            return code, output.read()

    def hardware(self, mutant: Mutant | None, preset: str) -> str | None:
        """A digest of the core that is generated, before Yosys; None if there is an error."""
        platform = f"Platform(is_pumped={preset == _PUMPED}, sleeps=True)"
        script = (
            "import hashlib; from amaranth.back import rtlil; from lutterfly.golden.presets import PRESETS;"
            "from lutterfly.hdl.top_axi import TopAxi; from lutterfly.hdl.top_ip import TopIp;"
            "from lutterfly.hdl.top_uart import TopUart; from lutterfly.hdl.parts.platforms import Platform;"
            f"config = PRESETS[{preset!r}];"
            "top = TopUart(config, 25_000_000) if config.arena.on_chip_bytes else TopIp(TopAxi(config));"
            f"text = rtlil.convert(top, name='top', emit_src=False, platform={platform});"
            "print(hashlib.sha256(text.encode()).hexdigest())"
        )
        tree = self.copy(mutant)
        ran = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tree,
            env=self._environment(tree),
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.stdout if ran.returncode == 0 else None

    def imports(self, mutant: Mutant) -> bool:
        """Whether everything can be imported that can be without the mutant."""
        names = [
            name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for name in mutants.sources()
            if not name.endswith("__main__.py")
        ]
        script = "import importlib, sys; [importlib.import_module(f'lutterfly.{name}') for name in sys.argv[1:]]"
        tree = self.copy(mutant)
        command = [sys.executable, "-c", script, *names]
        try:
            ran = subprocess.run(
                command, cwd=tree, env=self._environment(tree), capture_output=True, timeout=TEST_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return ran.returncode == 0

    def is_stillborn(self, mutant: Mutant, code: int, output: str) -> bool:
        """Whether it is no tests that failed: hardware cannot be built, or a module cannot be imported."""
        if mutant.file.startswith(HARDWARE):
            return (
                code != 1
                or "ToolError" in output
                or (bool(ERROR_PLACE.search(output)) and not self.hardware(mutant, "tiny"))
            )
        return code not in (1, 2) or not self.imports(mutant)

    def differs(self, mutant: Mutant) -> bool:
        """Whether any configuration's hardware differs from that without the mutant."""
        for preset in ("tiny", "ecp5-85k", "ecp5-25k-on-chip", _PUMPED):
            if preset not in self.digests:
                self.digests[preset] = self.hardware(None, preset)
                if self.digests[preset] is None:
                    raise SystemExit(f"the hardware of {preset} must be generated without a mutant, and is not")
            if self.hardware(mutant, preset) != self.digests[preset]:
                return True
        return False

    def check_passes(self, test: str, selected: str) -> None:
        """Tests that fail without any mutant would catch every one."""
        if not self.passing and (test, selected) not in self.passes:
            code, output = self.run(self.copy(None), [test], selected)
            if code not in (0, 5):
                raise SystemExit(f"{test} must pass without a mutant, and ends with {code}:\n{output[-5000:]}")
            self.passes.add((test, selected))

    def judge(self, mutant: Mutant, *, far: bool) -> Result:
        """Run the tests until one fails."""
        result = Result(mutant.name, mutant.file, "survived")
        for number, (tests, selected) in enumerate(runs_for(mutant.file, far=far)):
            code, output = self.run(self.copy(mutant), tests, selected)
            if code in (0, 5):
                # Before the dear ones: is there a difference at all?
                if number == 0 and mutant.file.startswith(HARDWARE) and not self.differs(mutant):
                    return replace(result, outcome="same")
                continue
            if code is None:
                return replace(result, outcome="hung", by=" ".join(tests))
            failed, inside = FAILED.search(output), FAILED_INSIDE.search(output)
            name = failed[1] if failed else tests[0]
            if self.is_stillborn(mutant, code, output):
                return replace(result, outcome="stillborn", by=name)
            self.check_passes(name.partition("::")[0], selected)
            return replace(result, outcome="caught", by=inside[1] if inside else name)
        return result
