"""An engine is one room: what is its own is named in few places, which a look through the syntax trees finds."""

from __future__ import annotations

import ast
import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import MISSING
from fnmatch import fnmatch
from pathlib import Path

import pytest

from cocotb_tests.support.toys import toy_borrower, toy_engine
from lutterfly.golden.engines import ENGINES
from lutterfly.golden.engines.finish import Finish
from lutterfly.golden.engines.issue import ANY_ISSUE, Issue
from lutterfly.golden.engines.specification import EngineSpecification
from lutterfly.golden.engines.specifications import SPECIFICATIONS
from lutterfly.golden.isa import FORMATS

ROOT = Path(__file__).parents[2]
ROOMS = {engine.name.lower() for engine in ENGINES.values()}
#: Besides the room of the engine itself, which is ``golden/engines/<name>/``.
PLACES = (
    # The tables.
    "golden/engines/__init__.py",
    "golden/engines/specifications.py",
    "golden/presets.py",
    # The engine that every configuration has, and those of a configuration that does not say.
    "golden/config.py",
    "hdl/engines/*.py",
    "hdl/winograd/*.py",
    # It draws what the array and its engines can do at most.
    "host/report/figures.py",
    "host/compiler/lower/*.py",
    "host/compiler/lower/neighbours/*.py",
)
#: What other parts of the project may take of a room: numbers that are part of how they compute, and its butterfly.
SHARED = {
    # Engines that work on the multipliers of the array, or as it does.
    *(
        (f"golden/engines/{room}/specification.py", "mac")
        for room in ("depthwise", "fpc", "multiply", "winograd", "xnor")
    ),
    ("golden/engines/binary_maximum/specification.py", "maximum"),
    ("hdl/butterfly/stage_sum.py", "fpc"),
    ("hdl/butterfly/stage.py", "fpc"),
}


#: Parts of the contracts that one engine alone makes use of, and why they are no flags of that engine.
OF_ONE = {
    "EngineSpecification.brings_weights": "a column multiplies by its weights or its borrower's, whoever that is",
    "EngineSpecification.random_scale": "a number for tests: results of sums are far greater than others",
    "Issue.masks_words": "step lists have counts whatever reads them; binary words have a last bit anywhere",
    "Issue.read_steps": "the steps that read nothing are told by the command, in one expression for all",
    "Issue.is_burst": "results of several words are issued one after the other, as the FIFO takes them",
}


def named(place: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of everything that is taken from an engine's room, or is the engine itself."""
    package = place.split("/")[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*base, *filter(None, [node.module])]).removeprefix("lutterfly.")
        for alias in node.names:
            parts = f"{module}.{alias.name}".split(".")
            if parts[:2] == ["golden", "engines"] and parts[2].lower() in ROOMS:
                yield node.lineno, parts[2].lower()


def own_fields(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of every name of an engine where fields are taken: ``step.fields.fpc``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Attribute(attr="fields"), attr=room) if room in ROOMS:
                yield node.lineno, room


@pytest.mark.parametrize(
    ("place", "text", "room"),
    [
        ("host/x.py", "from lutterfly.golden.engines import ENGINES, ADD", "add"),
        ("host/compiler/x.py", "from ...golden.engines import ADD", "add"),
        ("hdl/dma/x.py", "from ...golden.engines.fpc.configuration import FpcConfig", "fpc"),
        ("golden/x.py", "from .engines.fpc import FPC", "fpc"),
        ("golden/engines/add/x.py", "from ..fpc import FPC", "fpc"),
    ],
)
def test_a_name_is_found(place: str, text: str, room: str) -> None:
    assert set(named(place, ast.parse(text))) == {(1, room)}


def test_other_modules_of_its_name_are_no_rooms() -> None:
    assert list(named("golden/x.py", ast.parse("from .fpc import Stages"))) == []


def test_fields_are_found() -> None:
    assert list(own_fields(ast.parse("x = self.step.fields.fpc.stages"))) == [(1, "fpc")]


def test_engines_are_named_in_their_rooms_only() -> None:
    wrong = [
        f"{place}:{line}: {room}"
        for folder in ("golden", "hdl", "boards", "synth", "host", "bench", "examples", "train")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for tree in [ast.parse(path.read_text())]
        for place in [path.relative_to(ROOT).as_posix()]
        for line, room in [*named(place, tree), *own_fields(tree)]
        if not place.startswith(f"golden/engines/{room}/")
        and not any(fnmatch(place, pattern) for pattern in PLACES)
        and (place, room) not in SHARED
    ]
    assert wrong == []


def test_no_component_is_told_by_its_kind() -> None:
    """Hardware asks what an engine has, not what it is."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("compute", "control", "dma", "memories", "results")
        for path in sorted((ROOT / "hdl" / folder).glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass")
    ]
    assert wrong == []


def uses(contract: object, plain: object) -> set[str]:
    """The fields in which a part of a contract is not the plain one."""
    names = [field.name for field in dataclasses.fields(contract)]
    return {
        f"{type(contract).__name__}.{name}" for name in names if getattr(contract, name) != getattr(plain, name, None)
    }


def plain_specification() -> EngineSpecification:
    """What says nothing that it need not say."""
    given = {field.name: None for field in dataclasses.fields(EngineSpecification) if field.default is MISSING}
    return EngineSpecification(**given)


def test_a_contract_has_nothing_for_one_engine_alone() -> None:
    """A field of a contract that one engine uses is a flag of that engine, unless there is a reason."""
    specifications = [*SPECIFICATIONS.values(), toy_engine.SPECIFICATION, toy_borrower.SPECIFICATION]
    users: dict[str, set[str]] = defaultdict(set)
    for one in specifications:
        found = uses(one, plain_specification()) | uses(one.issue, ANY_ISSUE)
        for finish in one.finishes:
            found |= uses(finish, Finish(name=finish.name, codes=finish.codes))
        for name in found:
            users[name].add(one.name)
    known = {
        f"{kind.__name__}.{field.name}"
        for kind in (EngineSpecification, Issue, Finish)
        for field in dataclasses.fields(kind)
    }
    # What every finish has.
    assert known - users.keys() == {"Finish.name", "Finish.codes"}
    assert {name for name, engines in users.items() if len(engines) == 1} == OF_ONE.keys()


#: Where fields of an engine may be named beside its room: its other components, and words that mean something else.
NAMED_FIELDS = {
    ("hdl/butterfly/*.py", "fpc"): "the butterfly is the engine's own, and takes the fields as settings",
    ("hdl/*/requant.py", "fpc"): "a shift of the requantiser",
    ("hdl/dma/load_chunks.py", "fpc"): "what a chunk skips",
}
#: What commands go through. (Elsewhere, words like these mean many things.)
EXECUTION = ("golden", "hdl", "host/compiler", "host/driver", "host/program", "host/report", "host/simulation")


def field_users() -> dict[str, str]:
    """The fields of commands that one engine alone has, and whose they are."""
    owners: dict[str, list[str]] = defaultdict(list)
    for engine in ENGINES.values():
        for field in engine.fields:
            owners[field.name].append(engine.name.lower())
    shared = {field.name for fmt in FORMATS.values() for field in fmt.fields}
    return {name: found[0] for name, found in owners.items() if len(found) == 1 and name not in shared}


def fields_of_engines(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of every field of an engine's own that is named: ``command["halves"]``."""
    owners = field_users()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(name)) if name in owners:
                yield node.lineno, owners[name]


def test_a_field_of_an_engine_is_found() -> None:
    assert list(fields_of_engines(ast.parse('x = command["halves"]'))) == [(1, "fpc")]


def test_fields_of_an_engine_are_named_by_its_own_files_only() -> None:
    wrong = [
        f"{place}:{line}: {room}"
        for folder in EXECUTION
        for path in sorted((ROOT / folder).rglob("*.py"))
        for place in [path.relative_to(ROOT).as_posix()]
        for line, room in fields_of_engines(ast.parse(path.read_text()))
        if not place.startswith(f"golden/engines/{room}/")
        and not any(fnmatch(place, pattern) for pattern in PLACES)
        and not any(room == own and fnmatch(place, pattern) for pattern, own in NAMED_FIELDS)
    ]
    assert wrong == []
