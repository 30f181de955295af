"""Which tests judge a mutant: those of the same name, what is near by imports or by the table, and what runs it all."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from mutation.mutants import ROOT, sources

#: Configurations that take long to build come after the others.
LARGE = "ecp5 or large or default"
#: What is selected by its mark: tests that `make test` leaves out.
SWEPT = "regress"
#: What tests a module of the hardware beside the tests of the same name, nearest first.
NEIGHBOURS = {
    "addends": ("finishing", "compute"),
    "agreement": ("mac_array",),
    "answer_sender": ("bridge",),
    "arena_walk": ("bridge",),
    "assertions": ("simulator",),
    "axi": ("axi_guard",),
    "axi_arbiter": ("cores",),
    "axi_guard": ("dma_store",),
    "barrier": ("barrier_unit", "cores"),
    "barrier_unit": ("cores",),
    "bit_timer": ("uart_transmitter", "uart_receiver"),
    "burst": ("dma_store", "dma_load"),
    "byte_aligner": ("dma_load",),
    "cluster": ("cores",),
    "cobs_decoder": ("frame_intake",),
    "cobs_encoder": ("bridge",),
    "column_hop": ("mac_array",),
    "compute_checks": ("compute", "other_engines"),
    "device": ("weight_memory", "requant"),
    "dispatch": ("queue",),
    "engine": ("mac_array", "add_operands"),
    "feature_memory": ("write_back", "compute"),
    "fifo": ("axi_guard", "program", "dma_load"),
    "finishing": ("compute",),
    "flight": ("queue",),
    "foresight": ("windows", "compute"),
    "frame_intake": ("bridge",),
    "fpc": ("compute", "other_engines"),
    "group_walk": ("results",),
    "intake": ("windows",),
    "isa": ("queue", "dma_load"),
    "legality": ("queue",),
    "load_chunks": ("dma_load",),
    "load_command": ("dma_load",),
    "local_write": ("dma_load",),
    "lookahead": ("windows",),
    "lookup": ("windows",),
    "loop_nest": ("dma_store", "dma_load"),
    "loops": ("windows", "results"),
    "mac_column": ("mac_array",),
    "multipliers": ("mac_array", "compute"),
    "operations": ("bridge",),
    "pair_line": ("butterfly",),
    "pipeline": ("mac_array", "transfer_tables"),
    "place": ("write_back", "group_walk"),
    "pins": ("top_ip",),
    "pll": ("top_board",),
    "position": ("intake", "windows"),
    "pumped_multipliers": ("mac_array",),
    "register_port": ("bridge",),
    "request_check": ("bridge",),
    "result_choice": ("compute",),
    "result_fifo": ("results",),
    "results": ("compute",),
    "ring": ("program",),
    "settings": ("group_walk", "results"),
    "stage": ("butterfly",),
    "stage_sum": ("butterfly",),
    "store_beats": ("dma_store",),
    "taps": ("mac_column", "mac_array"),
    "tokens": ("queue",),
    "totals": ("mac_column", "mac_array"),
    "top_axi": ("core", "cores"),
    "windows": ("compute",),
    "words": ("mac_array",),
    "write_back": ("compute",),
}
#: What runs the whole core, for the mutants that nothing nearer notices.
FAR = (("test_edges.py", ""), ("test_faults.py", ""), ("test_core.py", "smallest"))
#: What compiles and runs networks of all kinds.
NETWORKS = ("test_generated_networks.py", "test_verify.py", "test_families.py", "test_mixed.py")
#: Of the same name in both: those of the hardware judge the other as well, without what they simulate.
WITHOUT_SIMULATION = {"cocotb_tests/hdl/results/test_requant.py": "golden or refusals or encoding or longest or ties"}
#: What tests all of a folder of ``golden/`` or ``host/`` and of its rooms, after the tests of the same name.
OF_FOLDERS = {
    "golden/engines": ("engines", "machine", "timing"),
    "golden/link": ("bridge", "frames", "cobs"),
    "golden": ("machine", "program_file"),
    "host/backend": ("evaluating", "golden_functions", "session", "sharing"),
    "host/board": ("bit_file", "loader"),
    "host/command/board": ("bitstream", "loader"),
    "host/compiler/clock": ("clock", "stalls"),
    "host/compiler/lower": ("lowerings", "element_width", "tiles"),
    "host/compiler": ("compiler", "lowerings", "memory"),
    "host/frontend/qonnx": ("qonnx", "qonnx_refusals", "qonnx_integers", "qonnx_sums"),
    "host/frontend": ("operator_errors", "refusals", "frontend_edges", "frontend_blocks", "frontend"),
    "host/graph/kinds": ("graph", "channels", "evaluate", "frontend_blocks", "concat_tables"),
    "host/graph": ("graph", "channels", "evaluate", "frontend_blocks", "concat_tables"),
    "host/quantize": ("rewriting", "quantize"),
    "host/handoff": ("export", "c_driver"),
    "host/report": ("report", "page", "figures", "gather"),
    "host/simulation": ("simulator", "cache", "build"),
    "host/transfer": ("table", "facts"),
    "host": ("cli", "session"),
}
#: Folders whose folders are rooms: one test has the name of all the files in each.
ROOMS = ("golden/engines",)
#: What tests a module of plain Python beside the tests of the same name.
BESIDE_NAMES = {
    "add": ("lanewise",),
    "arrange": ("pieces", "shuffles"),
    "arrangements": ("moves", "phases", "pieces", "copy"),
    "array_operation": ("connections",),
    "averaging": ("average",),
    "axes": ("rewriting",),
    "binary_body": ("binary",),
    "by_layer": ("width",),
    "body": ("fpc",),
    "channel_parts": ("permute",),
    "channel_use": ("permute",),
    "code_clips": ("qcdq",),
    "cuts": ("tiles",),
    "elements": ("arranging",),
    "emit": ("placing",),
    "float_operands": ("qcdq", "transposed"),
    "float_sums": ("qcdq", "transposed"),
    "fast_pointwise": ("fast_pointwise",),
    "fuse": ("pairs",),
    "group_norm": ("rewriting",),
    "matrices": ("matrix_product",),
    "fpc_body": ("fpc",),
    "images": ("placing",),
    "inputs": ("constants",),
    "isa": ("manual",),
    "kernels": ("frontend",),
    "landed": ("tokens", "compiler"),
    "landings": ("landing", "machine"),
    "fetch": ("machine", "landing"),
    "extremes": ("pairs",),
    "loaded": ("golden_functions",),
    "maximum": ("pairs", "lowerings"),
    "multiply": ("multiply", "multiplication"),
    "opening": ("transport",),
    "pair": ("multiply", "lanewise"),
    "moved": ("arranging",),
    "padding": ("arranging",),
    "parts": ("memory",),
    "past": ("arranging",),
    "program_parts": ("program_file",),
    "program_tensors": ("golden_functions",),
    "rearrange": ("copy", "phases", "pieces"),
    "registers": ("manual", "c_header"),
    "runs": ("pieces", "shuffles"),
    "segments": ("matrix_product", "placing"),
    "softmax": ("rewriting",),
    "subtraction": ("pairs",),
    "tasks": ("matrix_product",),
    "tensor_files": ("accuracy",),
    "residences": ("tiles", "occupancy"),
    "trunk": ("moves", "arranging"),
    "wide_products": ("rewriting",),
    "wide_windows": ("width",),
}
#: About the seconds that tests take, where it is more than a few; with the folder where others have the same name.
SECONDS = {
    "border_classes": 50,
    "memory": 45,
    "placing": 30,
    "binary_convolution": 30,
    "compiler": 20,
    "c_driver": 40,
    "average": 20,
    "batch": 10,
    "binary_functions": 15,
    "concat_tables": 15,
    "evaluating": 20,
    "fpc": 20,
    "frontend": 20,
    "families": 60,
    "generated_networks": 60,
    "mixed": 60,
    "mobilenet": 40,
    "networks": 60,
    "networks/binary": 25,
    "qcdq": 10,
    "qdq_graphs": 25,
    "separate": 10,
    "sharing": 30,
    "verify": 20,
    "views": 25,
    "wide_windows": 45,
    "width": 15,
}
FEW_SECONDS = 5
#: Tests near to a mutant of ``golden/`` or ``host/`` take so many seconds together, in about.
NEAR_SECONDS = 60
#: What judges the way from mapped cells to place and route, nearest first; the last one runs a whole board.
NETLIST = (
    "cocotb_tests/synth/mapped/test_fold.py",
    "cocotb_tests/synth/test_pumped.py",
    "cocotb_tests/synth/test_clock_groups.py",
    "cocotb_tests/synth/test_synth.py",
    *(f"cocotb_tests/synth/netlist/test_{name}.py" for name in ("expressions", "cells", "blocks", "translate")),
    "cocotb_tests/host/twin/test_netlist.py",
)
#: What judges a placement.
PLACED = tuple(f"cocotb_tests/synth/placed/test_{name}.py" for name in ("timing", "slices", "refine", "place"))
#: What is said of devices is compared with the tools'.
DEVICE, DEVICE_TEST = "synth/device.py", ("cocotb_tests/synth/test_device.py", "not every")
#: Imports between a test and a module that it judges when it takes longer, at most: itself, or through one more.
FAR_IMPORTS = 2
#: Folders of tests that judge no mutant of plain Python: the hardware's have it from elsewhere, and the project's read
#: the sources themselves.
_ASIDE = ("cocotb_tests/hdl/", "cocotb_tests/project/", "cocotb_tests/synth/", "cocotb_tests/train/")


def tests_for(file: str, *, far: bool) -> Iterator[tuple[str, str]]:
    """Test files and what to select in each, nearest first; with ``far`` what is farther and takes longer, too."""
    if file == DEVICE:
        return iter((DEVICE_TEST,))
    if file.startswith("synth/placed/"):
        return ((name, "") for name in PLACED)
    if file.startswith("synth/"):
        return ((name, "") for name in (NETLIST if far else NETLIST[:-1]))
    return hardware_tests(file, far=far) if file.startswith("hdl/") else software_tests(file, far=far)


def runs_for(file: str, *, far: bool) -> Iterator[tuple[list[str], str]]:
    """The same, as they are run: of plain Python the first, and the other near ones together, whose imports take longer
    than they do."""
    tests, near = list(tests_for(file, far=far)), len(list(tests_for(file, far=False)))
    if file.startswith("hdl/"):
        near = 1
    yield [tests[0][0]], tests[0][1]
    for selected, group in itertools.groupby(tests[1:near], key=lambda one: one[1]):
        yield [name for name, _ in group], selected
    yield from (([name], selected) for name, selected in tests[near:])


def hardware_tests(file: str, *, far: bool) -> Iterator[tuple[str, str]]:
    """Those of a unit and of its neighbours; with ``far`` larger configurations, sweeps and the core."""
    stem, tests = Path(file).stem, _tests_by_name()
    near = [f"test_{name}.py" for name in (f"proof_{stem}", stem, *NEIGHBOURS.get(stem, ()))]
    near = [tests[name] for name in near if name in tests]
    # Proofs take their time, and say no more than a test that fails.
    near.sort(key=lambda name: "proof" in name)
    yield from ((name, f"not ({LARGE})") for name in near)
    if far:
        yield from ((name, LARGE) for name in near[:2])
        yield from ((name, SWEPT) for name in near if name in near[:2] or "proof" in name)
        yield from ((tests[name], selected) for name, selected in FAR if tests[name] not in near)


def software_tests(file: str, *, far: bool) -> Iterator[tuple[str, str]]:
    """Those of the same name, and those that import the module, themselves or through others, until they take a minute;
    with ``far`` those that run networks, and whatever else imports it through one module at most."""
    path = Path(file)
    is_of_room = path.parent.parent.as_posix() in ROOMS
    stem = path.parent.name if is_of_room or path.stem == "__init__" else path.stem
    away = _imports_away(file)
    of_folder = next(OF_FOLDERS[name] for name in map(Path.as_posix, path.parents) if name in OF_FOLDERS)
    beside = (*BESIDE_NAMES.get(stem, ()), *of_folder)
    found = _of_the_same_name(path, stem, away)
    found += [test for name in beside for test in _called(f"test_{name}.py", path.parts[0])]
    found = list(dict.fromkeys([*found, *sorted(away, key=lambda name: _distance(name, away))]))
    near: list[str] = []
    for name in found:
        if sum(map(_seconds, near)) + _seconds(name) <= NEAR_SECONDS or not near:
            near.append(name)
    yield from ((name, WITHOUT_SIMULATION.get(name, "")) for name in near)
    if far:
        networks = [test for name in NETWORKS for test in _called(name, "networks")]
        rest = [name for name in found if away.get(name, 0) <= FAR_IMPORTS]
        yield from ((name, "") for name in dict.fromkeys([*networks, *rest]) if name not in near)


def _of_the_same_name(path: Path, stem: str, away: Mapping[str, int]) -> list[str]:
    """The tests of a module's name that import it or lie in its folder's mirror: others are of another module."""
    mirrored = next(
        folder for folder in (f"cocotb_tests/{one.as_posix()}" for one in path.parents) if (ROOT / folder).is_dir()
    )
    found = _called(f"test_{stem}.py", path.parts[0])
    return [test for test in found if away.get(test) == 1 or Path(test).parent.as_posix() == mirrored]


def _seconds(name: str) -> int:
    stem = Path(name).stem.removeprefix("test_")
    return SECONDS.get(f"{Path(name).parent.name}/{stem}", SECONDS.get(stem, FEW_SECONDS))


def _distance(name: str, away: Mapping[str, int]) -> tuple[int, int, int, str]:
    """What makes a test nearer: fewer imports between, less time, and less that it reaches beside."""
    return away[name], _seconds(name), len(_imported()[name]), name


@functools.cache
def _tests_by_name() -> dict[str, str]:
    """Those of the hardware first, where others have the same name."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "cocotb_tests").rglob("test_*.py")]
    return {path.name: path.as_posix() for path in sorted(paths, key=lambda path: path.parts[1] == "hdl")}


def _called(name: str, folder: str) -> list[str]:
    """The tests of plain Python of a name, those in the tests' folder of this name first."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "cocotb_tests").rglob(name)]
    found = [path.as_posix() for path in sorted(paths, key=lambda path: path.parts[1] != folder)]
    return [name for name in found if not name.startswith(_ASIDE) or name in WITHOUT_SIMULATION]


def _imports_away(file: str) -> dict[str, int]:
    """Tests of plain Python that reach a module, with the imports between: 1 for those that import it themselves."""
    readers: dict[str, set[str]] = {}
    for one, others in _imported().items():
        for other in others:
            readers.setdefault(other, set()).add(one)
    away, edge = {file: 0}, {file}
    for distance in itertools.count(1):
        edge = {one for other in edge for one in readers.get(other, ()) if one not in away}
        away |= dict.fromkeys(edge, distance)
        if not edge:
            break
    return {
        name: distance
        for name, distance in away.items()
        if Path(name).name.startswith("test_") and not name.startswith(_ASIDE)
    } | {name: 1 for name in WITHOUT_SIMULATION if away.get(name) == 1}


@functools.cache
def _imported() -> dict[str, set[str]]:
    """What each file of the project and of its tests imports, by paths in the checkout."""
    tests = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "cocotb_tests").rglob("*.py")}
    files = {**sources("golden", "hdl", "host", "boards", "synth", "examples"), **tests}
    return {name: {found for found in _imports_of(name, path) if found in files} for name, path in files.items()}


def _imports_of(name: str, path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            package = name.split("/")[: -node.level] if node.level else []
            module = [*package, *(node.module or "").split(".")] if node.module else package
            for parts in (module, *([*module, alias.name] for alias in node.names)):
                yield from _files_of(parts)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_of(alias.name.split("."))


def _files_of(parts: list[str]) -> Iterator[str]:
    """Where a module may stand: the project's packages, and the folder that tests share."""
    inside = "/".join(parts[1:] if parts[0] == "lutterfly" else parts)
    for folder in ("", "cocotb_tests/support/"):
        yield from (f"{folder}{inside}.py", f"{folder}{inside}/__init__.py")
