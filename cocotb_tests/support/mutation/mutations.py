"""Break hardware, golden functions, compiler and driver in single places, and see whether a test notices.

    PYTHONPATH=cocotb_tests/support .venv/bin/python -m mutation.mutations [--only PATTERN] [--near] [--again]
        [--results FILE]

Each mutant is a copy of the tree with one place of ``hdl/``, ``golden/`` or ``host/`` changed: those of
``mutants.toml``, and a sample of those that operators give (``mutants.py``), of every file of the hardware and of every
folder of the others. The tests that are nearest to the place (``mutant_tests.py``) run first, and the first that fails
ends it. Results are appended to a file of JSON lines, one for each mutant; what stands there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lutterfly.host.simulation.cache import PARTIAL, default_root
from mutation import mutants
from mutation.mutant_tests import runs_for
from mutation.mutants import HARDWARE, ROOT, SOFTWARE, Mutant

#: What is imported as a part of the package, and what tests read beside.
FOLDERS = ("golden", "hdl", "synth", "host", "examples")
BESIDE = ("cocotb_tests", "docs", "train", "bench")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")
#: For every file of the hardware, or folder of the others, so many mutants, and the rest in proportion to those that
#: there are.
LEAST = 3
SEED = 1
#: Bounded waits of the tests themselves must end a hang; what is ended here was not noticed.
LIMIT_SECONDS = 3600
#: The same, for what simulates little: a test that takes longer than the first ends itself, and has noticed.
TEST_SECONDS, SOFTWARE_LIMIT_SECONDS = 180, 1200
#: What compiles simulators: what it leaves in a cache may be wrong.
BUILDING = "host/simulation/"
#: An error on the way to the simulation, not in it.
ERROR_PLACE = re.compile(r"^/\S*/(?:amaranth|hdl)/\S+\.py:\d+: ", re.MULTILINE)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
FAILED_INSIDE = re.compile(r"(test_\w+\.\S+(?: .*)?) failed")


@dataclass(frozen=True)
class Result:
    """What became of a mutant.

    Attributes
    ----------
    outcome : str
        "caught", "stillborn" (it cannot be built or imported), "same" (the Verilog does not differ), "survived" or
        "hung".
    by : str
        The test that failed.
    """

    name: str
    file: str
    outcome: str
    by: str = ""
    seconds: float = 0


def chosen(hardware: int, software: int) -> list[Mutant]:
    """The mutants to run: those of the list, and so many others of the hardware and of all else; none for 0."""
    counts = {folders: count for folders, count in ((HARDWARE, hardware), (SOFTWARE, software)) if count}
    found = [mutant for mutant in mutants.named() if any(mutant.file.startswith(folders) for folders in counts)]
    for folders, count in counts.items():
        groups: dict[str, list[Mutant]] = {}
        for name, path in mutants.sources(*folders).items():
            group = name if folders is HARDWARE else str(Path(name).parent)
            groups.setdefault(group, []).extend(mutants.generated(name, path.read_text()))
        total = sum(map(len, groups.values()))
        rest = max(count - LEAST * len(groups), 0)
        for candidates in groups.values():
            found += mutants.sample(candidates, LEAST + round(rest * len(candidates) / total), SEED)
    return found


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
            (tree / mutants.sources()[mutant.file].relative_to(ROOT)).write_text(mutant.text)
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
            command += ["-k", selected]
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
        script = (
            "import hashlib; from amaranth.back import rtlil; from lutterfly.golden.config import PRESETS;"
            "from lutterfly.hdl.top_axi import TopAxi;"
            f"text = rtlil.convert(TopAxi(config=PRESETS[{preset!r}]), name='top', emit_src=False);"
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
        for preset in ("tiny", "ecp5-85k"):
            if preset not in self.digests:
                self.digests[preset] = self.hardware(None, preset)
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


def table(results: list[Result], out=sys.stdout) -> None:
    """Print what became of the mutants, by file."""
    equivalent, uncaught = mutants.reasons("equivalent"), mutants.reasons("uncaught")
    rows: dict[str, Counter] = {}
    for result in results:
        outcome = result.outcome
        if outcome == "same" or (outcome in ("survived", "hung") and result.name in equivalent):
            outcome = "equivalent"
        rows.setdefault(result.file, Counter())[outcome] += 1
    columns = ("caught", "survived", "hung", "equivalent", "stillborn")
    print(f"| file | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}", file=out)
    for file, counts in sorted(rows.items()):
        print(f"| {file} | {' | '.join(str(counts[column]) for column in columns)} |", file=out)
    for folders in (HARDWARE, SOFTWARE, (*HARDWARE, *SOFTWARE)):
        total = sum((counts for file, counts in rows.items() if file.startswith(folders)), Counter())
        judged = total["caught"] + total["survived"] + total["hung"]
        print(f"| **{', '.join(folders)}** | {' | '.join(str(total[column]) for column in columns)} |", file=out)
        print(f"{total['caught']} of {judged} that are neither equivalent nor stillborn are caught", file=sys.stderr)
    for result in results:
        if result.outcome in ("survived", "hung") and result.name not in equivalent:
            print(f"{result.outcome}: {result.name}: {uncaught.get(result.name, 'NO REASON GIVEN')}", file=out)


def main() -> None:
    """Run the mutants that have no result yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--hardware", type=int, default=200, help="mutants of hdl beside the list's, 0 for none (default: 200)"
    )
    parser.add_argument(
        "--software", type=int, default=160, help="of golden and host beside the list's, 0 for none (default: 160)"
    )
    parser.add_argument("--only", default="", help="only mutants whose name this regular expression finds")
    parser.add_argument("--near", action="store_true", help="leave out what is farther and takes longer")
    parser.add_argument("--again", action="store_true", help="run those again that were not caught")
    parser.add_argument("--passing", action="store_true", help="all tests are known to pass without a mutant")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--results", type=Path, default=Path("mutations.jsonl"))
    parser.add_argument("--models", type=Path, default=ROOT / ".." / "shared" / "models")
    options = parser.parse_args()
    wanted = [mutant for mutant in chosen(options.hardware, options.software) if re.search(options.only, mutant.name)]
    if options.list:
        print("\n".join(mutant.name for mutant in wanted))
        return
    # So that the programs that were started end as well, and the copies go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    known: dict[str, Result] = {}
    if options.results.exists():
        for line in options.results.read_text().splitlines():
            result = Result(**json.loads(line))
            known[result.name] = result
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        workplace = Workplace(Path(folder), options.models.resolve(), passing=options.passing)
        for mutant in wanted:
            before = known.get(mutant.name)
            if before and not (options.again and before.outcome in ("survived", "hung")):
                continue
            began = time.monotonic()
            result = replace(workplace.judge(mutant, far=not options.near), seconds=round(time.monotonic() - began, 1))
            known[mutant.name] = result
            with options.results.open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            print(f"{result.outcome:9} {result.seconds:6.1f} s  {result.name}  {result.by}", flush=True)
    table([known[mutant.name] for mutant in wanted])


if __name__ == "__main__":
    main()
