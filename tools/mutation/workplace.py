"""Trials of mutants: a copy of the tree with a mutant in it, and the tests that run there."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lutterfly.host.simulation.cache import PARTIAL, default_root

from .mutants import FOLDERS, HARDWARE, ROOT, Mutant, files, module_of
from .nearest import OF_THE_TREE, PACKAGE, TESTS, nearest

#: Tiers of tests: the nearest ones, all of `make test`, and the others of `make regress`.
TIERS = ("near", "test", "regress")
#: Markers of the tests that `make test` leaves out.
_BEYOND_TEST = "regress or demo_core"
#: Folders of the checkout that are not part of the tree.
_LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info")
#: Time-outs of the tests themselves must end a hang; a hang that ends here was not noticed.
_LIMIT_SECONDS = {"near": 3600, "test": 2 * 3600, "regress": 12 * 3600}
#: Seconds after which a sweep ends itself, as in `make regress`.
_SWEEP_SECONDS = 3600
#: A time-out in seconds: importing every module, or generating one preset's hardware, takes a tenth of it.
_SCRIPT_SECONDS = 900
#: The folder of the code that compiles simulators, with whose mutants a cache may get wrong entries.
_BUILDING = "host/simulation/"
#: Errors before the simulation, not in it.
_ERROR_PLACE = re.compile(r"^/\S*/(?:amaranth|hdl)/\S+\.py:\d+: ", re.MULTILINE)
#: Together these presets have all of the hardware.
_PRESETS = ("tiny", "ecp5-85k", "ecp5-25k-on-chip", "gw5a-138")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
#: The test that was running when pytest ended a hang.
_ENDED = re.compile(rf"File \"\S*/({TESTS}/\S+\.py)\", line \d+ in (test_\w+)")
_FAILED_INSIDE = re.compile(r"(test_\w+\.\S+(?: .*)?) failed")
#: pytest's exit codes for tests that pass and for none that is selected.
_PASSED = (0, 5)


@dataclass(frozen=True)
class Result:
    """The result of a mutant.

    Attributes
    ----------
    name, file : str
    outcome : str
        "caught", "stillborn" (it cannot be built or imported), "same" (the Verilog does not differ), "survived" or
        "hung".
    tier : str
        The tier of the test that failed, or the last that ran.
    by : str
        The test that failed.
    seconds : float
    """

    name: str
    file: str
    outcome: str
    tier: str = ""
    by: str = ""
    seconds: float = 0


@dataclass(frozen=True)
class PytestRun:
    """One start of pytest.

    Attributes
    ----------
    tier : str
    arguments : sequence of str
        The test files, and the selection of tests in them.
    """

    tier: str
    arguments: Sequence[str]


def runs_for(file: str, tiers: Sequence[str], jobs: int) -> Iterator[PytestRun]:
    """Return the runs for a mutant of a file: the nearest test, then those after it, then all others."""
    near = nearest(file)
    if "near" in tiers:
        for tests in filter(None, (near[:1], near[1:])):
            yield PytestRun("near", [*tests, "-m", f"not ({_BEYOND_TEST})"])
    everything = [f"--ignore={OF_THE_TREE}", f"--numprocesses={jobs}"]
    if "test" in tiers:
        yield PytestRun("test", [*everything, "-m", f"not ({_BEYOND_TEST})"])
    if "regress" in tiers:
        yield PytestRun("regress", [*everything, "-m", _BEYOND_TEST])


class Workplace:
    """A folder for the copy of the tree and for the simulators that are built for it.

    Parameters
    ----------
    folder : Path
        An empty folder.
    models : Path
        The tests' option ``--models``.
    jobs : int
        Parallel tests in runs of all tests.
    """

    def __init__(self, folder: Path, *, models: Path, jobs: int):
        self.folder, self.models, self.jobs = folder, models, jobs
        self._cache, self._kept = folder / "cache", folder / "kept"
        self._last: Mutant | None = None
        self._passes: set[tuple[str, ...]] = set()
        self._digests: dict[str, str] = {}
        self._lost: str | None = None
        # Copies of the tree write no byte code, so each run would compile modules that the checkout has not compiled.
        for top in (*FOLDERS, TESTS):
            compileall.compile_dir(ROOT / top, quiet=2)
        # Files that every design shares need not be compiled again; unfinished builds will have another name.
        for shared in (default_root() / "cocotb").glob("runtime-*/"):
            if PARTIAL not in shared.name:
                shutil.copytree(shared, self._cache / PACKAGE / "cocotb" / shared.name)
        # Simulators, which are found by their hardware, need no new build for mutants that do not change it.
        if (default_root() / "simulator").exists():
            ignore = shutil.ignore_patterns(f"*{PARTIAL}*")
            shutil.copytree(default_root() / "simulator", self._kept / PACKAGE / "simulator", ignore=ignore)

    def judge(self, mutant: Mutant, tiers: Sequence[str]) -> Result:
        """Run the tests of some tiers until one fails."""
        result = Result(mutant.name, mutant.file, "survived", tiers[-1])
        is_compared = mutant.folder != HARDWARE or TIERS[0] not in tiers
        for run in runs_for(mutant.file, tiers, self.jobs):
            code, output = self._run(self._copy(mutant), run)
            if code is None:
                return replace(result, outcome="hung", tier=run.tier, by=" ".join(run.arguments))
            if code not in _PASSED:
                return self._failed(mutant, run, code, output)
            # Before expensive runs, check whether the mutant makes a difference at all.
            if not is_compared and not self._differs(mutant):
                return replace(result, outcome="same", tier=run.tier)
            is_compared = True
        return result

    def _failed(self, mutant: Mutant, run: PytestRun, code: int, output: str) -> Result:
        """Return the result of a run that failed."""
        failed, inside, ended = (pattern.search(output) for pattern in (_FAILED, _FAILED_INSIDE, _ENDED))
        name = failed[1] if failed else "::".join(ended.groups()) if ended else run.arguments[0]
        outcome = "stillborn" if self._is_stillborn(mutant, code, output) else "caught"
        if outcome == "caught":
            # The name includes parameters, unless these contain spaces and are cut off.
            whole = name if name.endswith("]") else name.partition("[")[0]
            self._check_passes(whole if failed or ended else "", run)
        return Result(mutant.name, mutant.file, outcome, run.tier, inside[1] if inside else name)

    def _copy(self, mutant: Mutant | None) -> Path:
        """Make a fresh copy of the tree, with the mutant in it."""
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        if mutant is not self._last:
            for built in self._cache.glob(f"{PACKAGE}/*/*/"):
                if "runtime-" not in built.name:
                    shutil.rmtree(built)
            self._last = mutant
        # Compiled byte code is copied too, which Python uses for sources with unchanged times.
        shutil.copytree(ROOT, tree, ignore=_LEFT_OUT)
        # The copy has to come before the installed package, which is the checkout.
        package = tree / "packages" / PACKAGE
        package.mkdir(parents=True)
        for folder in ROOT.glob("[!.]*/"):
            (package / folder.name).symlink_to(tree / folder.name)
        if mutant is not None:
            (tree / mutant.file).write_text(mutant.text)
        return tree

    def _environment(self, tree: Path) -> dict[str, str]:
        is_kept = self._last is None or not self._last.file.startswith((f"{HARDWARE}/", _BUILDING))
        return os.environ | {
            "PYTHONPATH": str(tree / "packages"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "XDG_CACHE_HOME": str(self._kept if is_kept else self._cache),
            "COCOTB_MAX_FAILURES": "1",
        }

    def _run(self, tree: Path, run: PytestRun) -> tuple[int | None, str]:
        """Run tests in ``tree`` until one fails; return the exit code, None if they did not end, and their output."""
        options = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider", "--quick-build", f"--models={self.models}"]
        environment = self._environment(tree)
        if run.tier == "near":
            # Few tests need it, and all would wait for it.
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        elif run.tier == "regress":
            options += ["-o", f"faulthandler_timeout={_SWEEP_SECONDS}"]
        command = [sys.executable, "-m", "pytest", *run.arguments, *options, f"--basetemp={self.folder / 'pytest'}"]
        with tempfile.TemporaryFile("w+", dir=self.folder) as output:
            process = subprocess.Popen(
                command, cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                code = process.wait(_LIMIT_SECONDS[run.tier])
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            return code, output.read()

    def _script(self, mutant: Mutant | None, script: str, *arguments: str) -> str | None:
        """Return the output of a script in a tree with a mutant in it; None if it fails or does not end."""
        tree = self._copy(mutant)
        command = [sys.executable, "-c", script, *arguments]
        try:
            ran = subprocess.run(
                command,
                cwd=tree,
                env=self._environment(tree),
                capture_output=True,
                text=True,
                timeout=_SCRIPT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None
        return ran.stdout if ran.returncode == 0 else None

    def _hardware(self, mutant: Mutant | None, preset: str) -> str | None:
        """Return a digest of the generated core, before Yosys; None if there is an error."""
        script = (
            "import hashlib; from amaranth.back import rtlil; from lutterfly.golden.presets import PRESETS;"
            "from lutterfly.hdl.top_axi import TopAxi; from lutterfly.hdl.top_ip import TopIp;"
            "from lutterfly.hdl.top_uart import TopUart; from lutterfly.hdl.parts.pipeline import Platform;"
            f"config = PRESETS[{preset!r}];"
            "top = TopUart(config, 25_000_000) if config.arena.on_chip_bytes else TopIp(TopAxi(config));"
            "text = rtlil.convert(top, name='top', emit_src=False, platform=Platform(sleeps=True));"
            "print(hashlib.sha256(text.encode()).hexdigest())"
        )
        return self._script(mutant, script)

    def _differs(self, mutant: Mutant) -> bool:
        """Return whether any configuration's hardware differs from that without the mutant."""
        for preset in _PRESETS:
            if preset not in self._digests:
                digest = self._hardware(None, preset)
                if digest is None:
                    raise SystemExit(f"the hardware of {preset} must be generated without a mutant, and is not")
                self._digests[preset] = digest
            if self._hardware(mutant, preset) != self._digests[preset]:
                return True
        return False

    def _imports(self, mutant: Mutant | None) -> str | None:
        """Return the modules that cannot be imported, because of a missing extra or the mutant."""
        script = (
            "import importlib, sys\n"
            "for name in sys.argv[1:]:\n"
            "    try:\n"
            "        importlib.import_module(name)\n"
            "    except BaseException:\n"
            "        print(name)\n"
        )
        names = [f"{PACKAGE}.{module_of(file)}" for folder in FOLDERS for file in files(folder, ".py")]
        return self._script(mutant, script, *(name for name in names if not name.endswith("__main__")))

    def _is_stillborn(self, mutant: Mutant, code: int, output: str) -> bool:
        """Return whether hardware cannot be built, or a module cannot be imported, so that no test has failed."""
        if mutant.folder == HARDWARE:
            return (
                code not in (1, 2)
                or "ToolError" in output
                or (bool(_ERROR_PLACE.search(output)) and not self._hardware(mutant, "tiny"))
            )
        if self._lost is None:
            self._lost = self._imports(None)
        return code not in (1, 2) or self._imports(mutant) != self._lost

    def _check_passes(self, test: str, run: PytestRun) -> None:
        """Check that a test passes without a mutant, as else it would catch every one; ``test`` is empty if none is
        named."""
        arguments = [test, "-m", run.arguments[-1]] if test else run.arguments
        if tuple(arguments) in self._passes:
            return
        code, output = self._run(self._copy(None), replace(run, arguments=arguments))
        if code not in _PASSED:
            raise SystemExit(f"{test} must pass without a mutant, and ends with {code}:\n{output[-5000:]}")
        self._passes.add(tuple(arguments))
