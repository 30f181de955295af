"""Mutants: each place of the list is found, and what the operators give is Python that differs from what is there."""

from __future__ import annotations

import ast

from tools.mutation import mutants


def test_every_listed_place_is_found_once_and_differs() -> None:
    for mutant in mutants.listed():
        original = (mutants.ROOT / mutant.file).read_text()
        if mutant.file.endswith(".py"):
            assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(original)), mutant.name
        else:
            assert mutant.text != original, mutant.name


def test_what_is_drawn_is_python_and_differs() -> None:
    drawn = mutants.drawn(60, seed=1)
    assert len({mutant.name for mutant in drawn}) == 60
    assert {mutant.folder for mutant in drawn} == set(mutants.FOLDERS)
    for mutant in drawn:
        original = (mutants.ROOT / mutant.file).read_text()
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(original)), mutant.name
