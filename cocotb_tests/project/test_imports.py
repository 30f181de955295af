"""Imports: what is imported exists and is declared, and folders build on one another in one direction."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from cocotb_tests.support.checkout import DISTRIBUTIONS, PROJECT, ROOT, declared, tracked
from lutterfly.golden.engines import ENGINES
from lutterfly.host import graph

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
#: In which order the subfolders of a folder build on one another: each may import from those before it, and from the
#: files that stand in the folder itself. Those files may import everything. A subfolder that is not named here is free.
ORDER = {
    "golden": "link numerics transfer connections engines timing program machine",
    "hdl": "parts bus memories link engines dma results compute control",
    "host": "files model graph frontend quantize program compiler driver simulation"
    " integration transports experimental backend session report transfer command",
    "host/compiler": "lower rewrite layout schedule clock cluster",
    "host/frontend": "functions lowering qonnx",
    "synth": "netlist mapped",
    "train": "layers channels preparing schedules exporting",
}
#: The extras that the modules of each folder may need beyond the dependencies.
EXTRAS = {
    "bench": {"architectures", "test", "train"},
    "cocotb_tests": {"test", "synth", "board", "litex", "sdram", "report", "train", "brevitas"},
    "examples": {"train", "brevitas"},
    "hdl": {"sdram"},
    "host": {"report", "board", "litex", "sdram"},
    "synth": {"synth"},
    "train": {"train", "report"},
}
#: Folders whose modules need an extra to be imported (PyTorch): `make test-train` imports them.
NEED_TORCH = ("lutterfly.train", "lutterfly.examples")
#: Where an engine may be imported by its name, beside its own folders: tables of engines, and what shares its hardware.
NAME_ENGINES = (
    "golden/config.py",
    "golden/presets.py",
    "golden/engines/*",
    "hdl/engines/*",
    "host/compiler/lower/*",
    "host/report/figures.py",
)
KINDS = {name: one for name, one in vars(graph).items() if inspect.isclass(one) and issubclass(one, graph.Layer)}


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """Path in the checkout and syntax tree of every module."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), _parsed(path)


@functools.cache
def _import_nodes(tree: ast.Module) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The import statements of a module; each walk through a tree of the project takes seconds in all."""
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))


@functools.cache
def imports(path: Path, tree: ast.Module) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything that a module imports, relative names resolved to ``lutterfly.<folder>``."""
    return tuple(_imports(("lutterfly", *path.parts[:-1]), tree))


def _imports(package: tuple[str, ...], tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in _import_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def missing(tree: ast.Module) -> list[str]:
    """Give the absolute imports of a module from the package that name what its modules do not have, with lines."""
    found = []
    for node in _import_nodes(tree):
        if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").partition(".")[0] != "lutterfly":
            continue
        if node.module.startswith(NEED_TORCH):
            continue
        if importlib.util.find_spec(node.module) is None:
            found.append(f"line {node.lineno}: no module {node.module}")
            continue
        module = importlib.import_module(node.module)
        for name in (alias.name for alias in node.names):
            is_module = hasattr(module, "__path__") and importlib.util.find_spec(f"{node.module}.{name}") is not None
            if not is_module and not hasattr(module, name):
                found.append(f"line {node.lineno}: {node.module} has no {name}")
    return found


def test_everything_that_is_imported_exists() -> None:
    names = [name for name in tracked() if name.endswith(".py")]
    assert {name: lost for name in names if (lost := missing(_parsed(ROOT / name)))} == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from lutterfly.hdl.parts.pipeline import DELAYED", "has no DELAYED"),
        ("from lutterfly.hdl.parts.pipelines import delay", "no module lutterfly.hdl.parts.pipelines"),
    ],
)
def test_an_import_of_something_that_moved_is_noticed(text: str, message: str) -> None:
    assert message in missing(ast.parse(text))[0]


def test_folders_import_in_one_direction() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path, tree in modules(*ALLOWED)
        for line, name in imports(path, tree)
        if name.split(".")[0] == "lutterfly" and name.split(".")[1] not in ALLOWED[path.parts[0]]
    ]
    assert wrong == []


def test_subfolders_import_in_one_direction() -> None:
    wrong = []
    for folder, names in ORDER.items():
        order, home = names.split(), ("lutterfly", *folder.split("/"))
        assert [name for name in order if not (ROOT / folder / name).is_dir()] == [], folder
        for path, tree in modules(folder):
            if (own := path.relative_to(folder).parts[0]) not in order:
                continue
            others = [(line, name.split(".")) for line, name in imports(path, tree)]
            wrong += [
                f"{path}:{line}: {'.'.join(parts)}"
                for line, parts in others
                if tuple(parts[: len(home)]) == home
                and (other := parts[len(home)]) in order
                and order.index(other) > order.index(own)
            ]
    assert wrong == []


def test_the_host_imports_public_names_of_the_compiler_only() -> None:
    tree = ast.parse((ROOT / "host/compiler/__init__.py").read_text())
    (public,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )
    wrong = [
        f"{path}:{line}: {name}"
        for path, tree in modules("host")
        for line, name in imports(path, tree)
        if path.parts[1] != "compiler"
        and name.startswith("lutterfly.host.compiler.")
        and (len(parts := name.split(".")) != 4 or parts[3] not in public)
    ]
    assert wrong == []


def test_an_engine_is_imported_by_name_in_few_places() -> None:
    """A new engine is one file on each side and a line in a table: the rest of the project goes through the table."""
    rooms = {engine.name.lower() for engine in ENGINES.values()}
    wrong = [
        f"{path}:{line}: {name}"
        for path, tree in modules("golden", "hdl", "boards", "synth", "host", "examples", "train")
        for line, name in imports(path, tree)
        if (parts := name.split("."))[:3] == ["lutterfly", "golden", "engines"]
        and parts[3].lower() in rooms
        and not any(fnmatch(path.as_posix(), pattern) for pattern in NAME_ENGINES)
    ]
    assert wrong == []


def test_the_array_names_no_engine() -> None:
    """What an engine adds to it is a stage, which it finds in their table."""
    rooms = {engine.name.lower() for engine in ENGINES.values()}
    wrong = [
        f"{path}:{line}: {imported}"
        for path, tree in modules("hdl/engines")
        if path.name in ("mac_array.py", "mac_column.py", "stage.py")
        for line, imported in imports(path, tree)
        if rooms & {part.lower() for part in imported.split(".")}
    ]
    assert wrong == []


def kinds_asked_for(tree: ast.Module) -> list[str]:
    """Give the questions of a source for a layer's kind, with lines: isinstance, type comparison, match."""
    found = []
    names = {
        alias.asname or alias.name
        for node in _import_nodes(tree)
        if isinstance(node, ast.ImportFrom) and "graph" in (node.module or "").split(".")
        for alias in node.names
        if alias.name in KINDS
    }
    if not names:
        return []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
                asked_for = [asked]
            case ast.Compare(left=left, comparators=others):
                asked_for = [left, *others]
            case ast.MatchClass(cls=asked):
                asked_for = [asked]
            case _:
                continue
        parts = [part for one in asked_for for part in ast.walk(one)]
        if any(isinstance(part, ast.Name) and part.id in names for part in parts):
            found.append(f"{node.lineno if hasattr(node, 'lineno') else node.cls.lineno}: {ast.unparse(asked_for[-1])}")
    return found


def test_no_file_outside_the_graph_asks_for_the_kind_of_a_layer() -> None:
    """A layer says of itself what others need to know: a new kind is one file, and no other has a list of kinds."""
    found = {
        name: asked
        for name in tracked()
        if name.startswith(("host/", "train/", "examples/", "bench/")) and name.endswith(".py")
        if not name.startswith("host/graph/")
        if (asked := kinds_asked_for(_parsed(ROOT / name)))
    }
    assert found == {}


@pytest.mark.parametrize(
    "asked",
    [
        "isinstance(layer, Concat | Maximum)",
        "issubclass(kind, (Pad, Layer))",
        "type(layer) is Pad",
        "match layer:\n    case Pad(window=window):\n        pass",
    ],
)
def test_a_question_for_the_kind_of_a_layer_is_noticed(asked: str) -> None:
    head = "from ..graph import Concat, Layer, MaxPool as Maximum, Pad\n"
    harmless = head + "Pad('name')\nisinstance(array, list)\n{Pad: 1}[type(layer)]"
    assert len(kinds_asked_for(ast.parse(head + asked))) == 1
    assert kinds_asked_for(ast.parse(harmless)) == []


def test_every_import_is_declared() -> None:
    wrong = []
    for folder in (*ALLOWED, "bench", "cocotb_tests"):
        wanted = declared(PROJECT["project"]["dependencies"])
        for extra in EXTRAS.get(folder, ()):
            wanted |= declared(PROJECT["project"]["optional-dependencies"][extra])
        # A script imports its neighbours by their names.
        own = {"lutterfly", "cocotb_tests", "tools"} | {path.stem for path, _ in modules(folder)}
        for path, tree in modules(folder):
            for line, name in imports(path, tree):
                top, *rest = name.split(".")
                distribution = DISTRIBUTIONS.get(".".join([top, *rest[:1]]), DISTRIBUTIONS.get(top, top))
                if top not in own | set(sys.stdlib_module_names) and distribution not in wanted:
                    wrong.append(f"{path}:{line}: {name}")
    assert wrong == []


def test_torch_is_imported_where_it_is_set_up_only() -> None:
    users = {
        str(path)
        for path, tree in modules(*ALLOWED, "cocotb_tests")
        for _, name in imports(path, tree)
        if name.split(".")[0] == "torch" or name.startswith("lutterfly.train.")
    }
    allowed = (
        *("train/*.py", "examples/train_*.py", "cocotb_tests/exported/*make.py"),
        *("cocotb_tests/support/*/torch_*.py", "cocotb_tests/train/test_*.py"),
    )
    assert {name for name in users if not any(fnmatch(name, pattern) for pattern in allowed)} == set()
    tests = sorted((ROOT / "cocotb_tests/train").glob("test_*.py"))
    assert tests
    # They are skipped where it is missing.
    assert [path.name for path in tests if 'pytest.importorskip("torch", reason=' not in path.read_text()] == []


def test_the_contract_is_read_with_numpy_alone() -> None:
    """Instruction set, registers, configuration and link need no other package that has to be installed."""
    names = ("presets", "isa", "registers", "config", "c_header", "pins", "link.frames", "program.program")
    code = f"import sys, {', '.join(f'lutterfly.golden.{name}' for name in names)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()).isdisjoint({"onnx", "onnxruntime", "amaranth"})
