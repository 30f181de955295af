"""Mutants: every operator on a small source, and a list that fits the hardware as it is."""

from __future__ import annotations

import ast
import textwrap

import mutants
import mutations
import pytest

SOURCE = textwrap.dedent(
    '''\
    class Unit:
        """Text with 7."""

        def elaborate(self, platform) -> Module:
            with m.If(self.first & ~self.second):
                m.d.sync += [self.count.eq(self.count + 1), self.valid.eq(Mux(a == 0, b, c))]
            m.d.comb += self.last.eq(word[2:].any())
            m.next = "NEXT"
            raise ValueError(f"count must be {8}")
    '''
)


def test_every_operator() -> None:
    found = {mutant.name.split(": ", 2)[2] for mutant in mutants.generated("unit.py", SOURCE)}
    changes = {name[name.index("[") : name.rindex("]") + 1] for name in found if "] +=" not in name}
    for change in (
        "[self.first & ~self.second -> (self.first & ~self.second) & 0]",
        "[self.first & ~self.second -> (self.first & ~self.second) | 1]",
        "[& -> |]",
        "[~self.second -> self.second]",
        "[+ -> -]",
        "[== -> !=]",
        "[b, c -> c, b]",
        "[Mux(a == 0, b, c) -> 1]",
        "[any -> all]",
        '[m.next = "NEXT" -> pass]',
        "[self.last.eq(word[2:].any()) -> []]",
    ):
        assert any(change in one for one in changes), change
    # One for each of the two statements of the list; three constants, of which 0 is not lowered.
    assert sum("-> *[]]" in name for name in found) == 2
    assert sum(any(f"[{old} -> {new}]" in name for old, new in ("12", "10", "01", "23", "21")) for name in found) == 5
    assert not any("7" in name or "8" in name for name in found)


@pytest.mark.parametrize("path", mutants.sources().values(), ids=lambda path: path.name)
def test_mutants_are_python_and_differ(path) -> None:
    text = path.read_text()
    found = mutants.generated(path.name, text)
    assert len({mutant.name for mutant in found}) == len(found)
    original = ast.dump(ast.parse(text))
    assert all(ast.dump(ast.parse(mutant.text)) != original for mutant in mutants.sample(found, 5, 1))


def test_the_sample_is_of_every_file_and_the_same_each_time() -> None:
    chosen = mutations.chosen(200)
    assert [mutant.name for mutant in chosen] == [mutant.name for mutant in mutations.chosen(200)]
    assert len({mutant.name for mutant in chosen}) == len(chosen) >= 200
    assert {mutant.file for mutant in chosen} == set(mutants.sources())


def test_the_list_fits_the_hardware() -> None:
    names = {mutant.name for mutant in mutants.named()}
    for name, path in mutants.sources().items():
        names |= {mutant.name for mutant in mutants.generated(name, path.read_text())}
    listed = mutants.reasons("equivalent") | mutants.reasons("uncaught")
    assert set(listed) <= names
    assert all(reason.strip() for reason in listed.values())
