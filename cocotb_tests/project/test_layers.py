"""Kinds of layers stand in `host/graph`: no other file asks which one a layer is, or whether it has an attribute."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from lutterfly.host import graph
from lutterfly.host.graph import Layer

ROOT = Path(__file__).parents[2]
HOME = "host/graph"
#: What may import the host.
FOLDERS = ("host", "train", "examples", "bench")
KINDS = {name: one for name, one in vars(graph).items() if inspect.isclass(one) and issubclass(one, Layer)}
#: What some layer says of itself, by its fields and by the contract.
SAID = {
    name
    for kind in KINDS.values()
    for name in (*dir(kind), *inspect.get_annotations(kind), *kind.__dataclass_fields__)
    if not name.startswith("_")
}


def questions(source: str) -> list[str]:
    """What in a source depends on a kind of layer, or on whether a layer has an attribute."""
    tree = ast.parse(source)
    kinds = _bound(tree)
    return [f"{node.lineno}: {ast.unparse(node)}" for node in ast.walk(tree) if any(_asks(node, kinds))]


def _bound(tree: ast.Module) -> set[str]:
    """The names of kinds of layers in a file, which may have others: what is imported from `host/graph`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and "graph" in (node.module or "").split("."):
            found |= {alias.asname or alias.name for alias in node.names if alias.name in KINDS}
    return found


def _asks(node: ast.AST, kinds: set[str]) -> Iterator[bool]:
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
            yield _names(asked, kinds)
        case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=name), *_]):
            yield name in SAID
        case ast.Compare(left=left, comparators=[*others]):
            # `type(layer) is Pad`; tables from kinds to what is made of them are looked up, not compared with.
            yield any(_names(one, kinds) for one in (left, *others))
        case ast.MatchClass(cls=asked):
            yield _names(asked, kinds)
        case ast.FunctionDef(decorator_list=[*decorators], args=ast.arguments(args=[first, *_])):
            is_registered = any(isinstance(one, ast.Attribute) and one.attr == "register" for one in decorators)
            yield is_registered and first.annotation is not None and _names(first.annotation, kinds)


def _names(asked: ast.AST, kinds: set[str]) -> bool:
    """Whether an expression names a kind, or a module's kind."""
    return any(
        (isinstance(node, ast.Name) and node.id in kinds)
        or (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and _is_kind(node))
        for node in ast.walk(asked)
    )


def _is_kind(node: ast.Attribute) -> bool:
    return node.value.id == "graph" and node.attr in KINDS


IMPORT = "from ..graph import Concat, Layer, MaxPool as Maximum, Pad\n"


@pytest.mark.parametrize(
    "asked",
    [
        "isinstance(layer, Pad)",
        "isinstance(layer, Concat | Maximum)",
        "isinstance(layer, (Concat, Maximum))",
        "issubclass(kind, Layer)",
        "isinstance(layer, graph.Slice)",
        "type(layer) is Pad",
        "type(layer) in (Concat, Pad)",
        "Pad == layer.__class__",
        "hasattr(layer, 'finish')",
        "getattr(layer, 'window', None)",
        "getattr(layer, 'multipliers', {})",
        "[one for one in layers if not isinstance(one, Pad)]",
        "match layer:\n    case Pad(window=window):\n        pass",
        "@evaluate.register\ndef _(layer: Concat, values):\n    pass",
    ],
)
def test_a_question_for_the_kind_of_a_layer_is_found(asked: str) -> None:
    assert len(questions(IMPORT + asked)) == 1


@pytest.mark.parametrize(
    "said",
    [
        "layer.is_copy and layer.table is not None",
        "LOWERING = {Concat: copy, Pad: pad}[type(layer)]",
        "Pad('name', ('x',), 'y', channels=3)",
        "isinstance(array, np.ndarray)",
        # Of another module, of the same name.
        "from .pointwise import Pointwise\nisinstance(chain, Pointwise)",
        "getattr(tensor, side)",
        "hasattr(module, 'fixed_point')",
    ],
)
def test_what_asks_no_layer_for_its_kind_is_left_alone(said: str) -> None:
    assert questions(IMPORT + said) == []


def test_no_file_asks_for_the_kind_of_a_layer() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{question}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(f"{HOME}/")
        for question in questions(path.read_text())
    ]
    assert found == []


def test_every_kind_of_layer_has_a_file_of_its_own() -> None:
    homes = [kind.__module__ for kind in KINDS.values() if not inspect.isabstract(kind)]
    assert len(set(homes)) == len(homes) > 1
    assert all(name.startswith("lutterfly.host.graph.") for name in homes)
