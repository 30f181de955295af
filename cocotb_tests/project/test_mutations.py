"""Mutants: each place of the list is found, and what they make of a file is Python that differs from what is there."""

from __future__ import annotations

import ast
import functools

import pytest

from tools.mutation import mutants


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
