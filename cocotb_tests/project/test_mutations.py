"""Mutants: every operator on small sources, a list that fits the tree as it is, and the tests that judge them."""

from __future__ import annotations

import ast
import textwrap

import pytest
from mutation import mutant_tests, mutants, mutations

HARDWARE = textwrap.dedent(
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


SOFTWARE = textwrap.dedent(
    '''\
    class Plan:
        """Text with 7."""

        def __repr__(self) -> str:
            return "plan" * 21

        def steps(self, parts: "34", least: int = 22, *, known: bool = False) -> Iterator:
            assert least < 23
            for part in parts:
                if part in self.parts and not known:
                    raise ValueError(f"{part} must be at most {24}, not 25")
                while part < least or self.more:
                    continue
                self.parts.append(self.steps(part, known=True))
                self.count += -size // width
                yield min(part, *(one for one in parts if one is None))
                self.rest = take(first, parts[
                    first
                    :last
                ])
            yield from rest if self.parts else "ab" + "c"
    '''
)


def changes_of(file: str, source: str) -> set[str]:
    """What stands in the brackets around each change; sources have no other ones around."""
    found = {mutant.name.split(": ", 2)[2] for mutant in mutants.generated(file, source)}
    return {name[name.index("[") : name.rindex("]") + 1] for name in found if "] +=" not in name}


def test_every_operator_of_software(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "_optional", lambda: {"steps": {"known", "least"}})
    names = [mutant.name for mutant in mutants.generated("host/plan.py", SOFTWARE)]
    expected = {
        "[22 -> 23]",
        "[22 -> 21]",
        "[False -> True]",
        "[True -> False]",
        "[first -> (first) + 1]",
        "[last -> (last) + 1]",
        "[part in self.parts and not known -> ((part in self.parts and not known) and False)]",
        "[in -> not in]",
        "[and -> or]",
        "[not known -> (known)]",
        "[part < least or self.more -> ((part < least or self.more) and False)]",
        "[< -> <=]",
        "[or -> and]",
        "[continue -> break]",
        "[self.parts.append(self.steps(part, known=True)) -> pass]",
        "[, known=True -> ]",
        "[self.count += -size // width -> pass]",
        "[+= -> -=]",
        "[-size -> size]",
        "[// -> *]",
        "[yield min(part, *(one for one in parts if one is None)) -> (yield min(",
        "[min -> max]",
        "[one is None -> ((one is None) or True)]",
        "[is -> is not]",
        '[yield from rest if self.parts else "ab" + "c" -> yield from ()]',
        "[self.parts -> ((self.parts) and False)]",
        "[self.parts -> ((self.parts) or True)]",
    }
    assert [change for change in expected if not any(change in name for name in names)] == []
    assert [name for name in names if not any(change in name for change in expected)] == []


def test_every_operator_of_hardware() -> None:
    changes = changes_of("hdl/unit.py", HARDWARE)
    found = {mutant.name for mutant in mutants.generated("hdl/unit.py", HARDWARE)}
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


FOLDERS = sorted({name.rpartition("/")[0] for name in mutants.sources()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_mutants_are_python_and_differ(folder: str) -> None:
    for name, path in mutants.sources().items():
        if name.rpartition("/")[0] == folder:
            text = path.read_text()
            found = mutants.generated(name, text)
            assert len({mutant.name for mutant in found}) == len(found)
            original = ast.dump(ast.parse(text))
            assert all(ast.dump(ast.parse(mutant.text)) != original for mutant in mutants.sample(found, 3, 1))


def test_the_sample_is_of_every_folder_and_the_same_each_time() -> None:
    chosen = mutations.chosen(200, 160)
    assert [mutant.name for mutant in chosen] == [mutant.name for mutant in mutations.chosen(200, 160)]
    assert len({mutant.name for mutant in chosen}) == len(chosen)
    files = {mutant.file for mutant in chosen if not mutant.file.startswith(mutants.LISTED_ONLY)}
    # Of those in which there is a place to break.
    breakable = {name for name, path in mutants.sources().items() if list(mutants.generated(name, path.read_text()))}
    assert {file for file in files if file.startswith("hdl/")} == {
        name for name in breakable if name.startswith("hdl/")
    }
    assert {file.rpartition("/")[0] for file in files} == {name.rpartition("/")[0] for name in breakable}
    assert sum(mutant.file.startswith("hdl/") for mutant in chosen) >= 200
    assert sum(mutant.file.startswith(("golden/", "host/")) for mutant in chosen) >= 150


def test_a_sample_does_not_know_of_other_folders() -> None:
    text = mutants.sources()["golden/numerics/requant.py"].read_text()
    samples = [mutants.sample(mutants.generated(f"{folder}/requant.py", text), 9, 1) for folder in ("golden", "host")]
    first, second = ([mutant.name.split(": ", 1)[1] for mutant in found] for found in samples)
    assert first == second


@pytest.mark.parametrize("mutant", mutants.named(), ids=lambda mutant: mutant.name)
def test_a_listed_mutant_is_python_and_differs(mutant: mutants.Mutant) -> None:
    original = (mutants.ROOT / mutant.file).read_text()
    if mutant.file.endswith(".py"):
        assert ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(original))
    else:
        assert mutant.text != original


def test_the_list_fits_the_tree() -> None:
    names = {mutant.name for mutant in mutants.named()}
    for name, path in mutants.sources().items():
        names |= {mutant.name for mutant in mutants.generated(name, path.read_text())}
    listed = mutants.reasons("equivalent") | mutants.reasons("uncaught")
    assert set(listed) <= names
    assert all(reason.strip() for reason in listed.values())


@pytest.mark.parametrize("file", mutants.sources("golden", "host"))
def test_every_file_has_near_tests_that_take_about_a_minute(file: str) -> None:
    near = [name for name, _ in mutant_tests.tests_for(file, far=False)]
    assert 2 <= len(near) <= mutant_tests.NEAR_SECONDS / mutant_tests.FEW_SECONDS
    every = [name for name, _ in mutant_tests.tests_for(file, far=True)]
    assert every[: len(near)] == near
    assert len(set(every)) == len(every) >= len(near) + 2
    assert all((mutants.ROOT / name).exists() for name in every)


@pytest.mark.parametrize("file", ["golden/numerics/requant.py", "host/command/cli.py", "hdl/core.py"])
@pytest.mark.parametrize("far", [False, True])
def test_tests_are_run_together_in_their_order(file: str, far: bool) -> None:
    runs = list(mutant_tests.runs_for(file, far=far))
    assert [(name, selected) for names, selected in runs for name in names] == list(
        mutant_tests.tests_for(file, far=far)
    )
    together = max(len(names) for names, _ in runs)
    assert len(runs[0][0]) == 1
    assert together == 1 if file.startswith("hdl/") else together > 5


def test_what_make_test_leaves_out_judges_hardware_last() -> None:
    runs = list(mutant_tests.tests_for("hdl/bus/axi_arbiter.py", far=True))
    swept = [name for name, selected in runs if selected == mutant_tests.SWEPT]
    assert swept == [
        f"cocotb_tests/hdl/{name}.py" for name in ("bus/test_axi_arbiter", "test_cores", "bus/test_proof_axi_arbiter")
    ]
    assert swept[0] == runs[0][0]
    assert not any(selected == mutant_tests.SWEPT for _, selected in runs[: len(swept)])


def test_tests_of_the_same_name_come_first() -> None:
    def first(file: str) -> str:
        return next(mutant_tests.tests_for(file, far=False))[0]

    assert first("golden/numerics/fpc.py") == "cocotb_tests/golden/test_fpc.py"
    assert first("host/compiler/rewrite/permute.py") == "cocotb_tests/host/compiler/rewrite/test_permute.py"
    assert first("host/frontend/qonnx/__init__.py") == "cocotb_tests/host/frontend/qonnx/test_qonnx.py"
    assert first("golden/numerics/requant.py") == "cocotb_tests/hdl/results/test_requant.py"
    assert first("host/compiler/clock/load.py") == "cocotb_tests/host/compiler/clock/test_clock.py"


def test_tests_of_another_module_of_the_same_name_do_not_come_first() -> None:
    for file, other in (
        ("host/frontend/building/build.py", "cocotb_tests/host/simulation/test_build.py"),
        ("host/frontend/lowering/pairs/addition.py", "cocotb_tests/golden/test_addition.py"),
        ("host/compiler/lower/convolution.py", "cocotb_tests/golden/test_convolution.py"),
    ):
        assert other not in [name for name, _ in mutant_tests.tests_for(file, far=False)], file
    # By a program of its own, which is no import, but in the same folder.
    first = next(name for name, _ in mutant_tests.tests_for("host/files/standard_streams.py", far=False))
    assert first == "cocotb_tests/host/files/test_standard_streams.py"


def test_no_mutants_of_what_is_left_out() -> None:
    assert not any(mutant.file.startswith("hdl/") for mutant in mutations.chosen(0, 160))
    assert all(mutant.file.startswith("hdl/") for mutant in mutations.chosen(200, 0))
    assert {mutant.name for mutant in mutations.chosen(0, 0)} == set()
