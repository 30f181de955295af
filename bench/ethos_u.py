"""Arm's Ethos-U with as many multipliers: what its compiler Vela estimates, beside the simulated cycles of ours.

    .venv/bin/python bench/ethos_u.py [--accelerator NAME] [--preset NAME] [--models FOLDER] [--mhz MHZ] [--layers]
        [VARIANT ...]

Vela's names of accelerators end in their multipliers: ``ethos-u55-128``, ``ethos-u65-256``, ``ethos-u85-512``.

FOLDER has the networks of MLPerf Tiny twice: ``ic_qop.onnx`` and so on for us, ``tflite/ic.tflite`` for Vela. Softmax
is left out on both sides: ours runs on the host, and from the estimate the cycles of its operators are subtracted. A
VARIANT is an ONNX file of ours (with fast pointwise convolutions, say) that gets a line of its own without an estimate.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cycles import measure
from loaded import load

from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.synth.tools import install_command

NETWORKS = ("ic", "kws", "vww", "ad")
MODELS = Path(__file__).parents[1] / ".." / "shared" / "models"
#: Vela's name of the accelerator that has as many multipliers as the preset.
ACCELERATOR = "ethos-u55-128"
#: All data in on-chip memory, Vela's default.
MEMORY_MODES = (("--memory-mode", "Sram_Only"), ())
SOFTMAX = "Softmax"
TIMEOUT_S = 600


@dataclass(frozen=True)
class VelaEstimate:
    """Vela's, of one network.

    Attributes
    ----------
    memory_mode : str
        Its name.
    clock_mhz : float
        Clock of Vela's system configuration.
    layers : list of dict
        The rows of the per-layer CSV.
    """

    memory_mode: str
    clock_mhz: float
    layers: list[dict[str, str]]

    @property
    def cycles(self) -> int:
        """Cycles of all operators but Softmax."""
        return sum(cycles(row) for row in self.layers if row["Original Operator"] != SOFTMAX)


def cycles(row: dict[str, str]) -> int:
    """Return the cycles of one operator."""
    return int(row["Op Cycles"])


def read_estimate(folder: Path, name: str) -> VelaEstimate:
    """Read Vela's estimate of a network.

    Raises
    ------
    ValueError
        If the operators' cycles are not the network's, so that none can be subtracted; if an operator runs on the CPU,
        of which Vela knows no cycles.
    """
    (summary_path,) = folder.glob(f"{name}_summary_*.csv")
    (summary,) = _rows(summary_path)
    layers = _rows(folder / f"{name}_per-layer.csv")
    outside = sorted({row["Original Operator"] for row in layers if row["Target"] != "NPU"})
    if outside:
        raise ValueError(f"{name}: Vela leaves {', '.join(outside)} to the CPU and does not count its cycles")
    whole, parts = int(summary["cycles_total"]), sum(map(cycles, layers))
    if parts != whole:
        raise ValueError(f"{name}: cycles of all operators must be those of the network, {whole:,}, not {parts:,}")
    return VelaEstimate(summary["memory_mode"], float(summary["core_clock"]) / 1e6, layers)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def estimate(path: Path, accelerator: str, memory_mode: tuple[str, ...]) -> VelaEstimate:
    """Run Vela on a TFLite file, in a folder that vanishes."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--accelerator-config", accelerator, *memory_mode, "--verbose-performance", "--output-dir", folder]
        command = [sys.executable, "-m", "ethosu.vela", *options, str(path.resolve())]
        # Errors among what it prints, and in order.
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        ended = subprocess.run(command, check=False, cwd=folder, text=True, timeout=TIMEOUT_S, **pipes)
        if ended.returncode:
            raise SystemExit(f"vela failed on {path} with exit code {ended.returncode}:\n{ended.stdout[-2000:]}")
        return read_estimate(Path(folder), path.stem)


def microseconds(count: int, clock_mhz: float) -> str:
    """Convert cycles to microseconds."""
    return f"{count / clock_mhz:,.0f}"


def check(options: argparse.Namespace) -> None:
    """Say what is missing, and the remedy, before anything is built."""
    if importlib.util.find_spec("ethosu") is None:
        raise SystemExit(
            f"Vela is missing (Arm's compiler, the extra `rivals`); install it: {install_command('rivals')}"
        )
    wanted = [options.models / file for name in NETWORKS for file in (f"{name}_qop.onnx", f"tflite/{name}.tflite")]
    missing = [str(path) for path in (*wanted, *options.variants) if not path.is_file()]
    if missing:
        raise SystemExit(f"missing: {', '.join(missing)}; name the folder of the MLPerf Tiny networks with --models")


def print_layers(name: str, found: VelaEstimate) -> None:
    """Print the layers on which a network's cycles are spent, by Vela's estimate."""
    print(
        f"\n| {name}: operator ({found.memory_mode}) | cycles | multiply-accumulates | utilisation |\n|---|---|---|---|"
    )
    for row in found.layers:
        if row["Original Operator"] != SOFTMAX and cycles(row):
            used = f"{float(row['Util% (MAC)']):.1f} %"
            print(f"| {row['NNG Operator']} | {cycles(row):,} | {int(row['MAC Count']):,} | {used} |")


def main() -> None:
    """Print a Markdown table: a line for each network, then one for each variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="*", type=Path, metavar="VARIANT", help="more ONNX files of ours")
    parser.add_argument("--accelerator", default=ACCELERATOR, help=f"Vela's name of theirs (default: {ACCELERATOR})")
    parser.add_argument("--preset", choices=PRESETS, default=DEFAULT_PRESET, help=f"ours (default: {DEFAULT_PRESET})")
    parser.add_argument("--models", type=Path, default=MODELS, help="folder of the MLPerf Tiny networks")
    parser.add_argument("--mhz", type=float, default=100.0, help="clock of ours, for the time (default: 100)")
    parser.add_argument("--layers", action="store_true", help="a table of Vela's operators for each network as well")
    options = parser.parse_args()
    check(options)
    found = {
        name: [
            estimate(options.models / "tflite" / f"{name}.tflite", options.accelerator, mode) for mode in MEMORY_MODES
        ]
        for name in NETWORKS
    }
    first, default = found[NETWORKS[0]]
    print(
        f"| network | {options.accelerator}, {first.memory_mode} | {default.memory_mode} (default) "
        f"| {options.preset} ({PRESETS[options.preset].multipliers} multipliers) | cycles there / here "
        f"| µs there at {first.clock_mhz:g} MHz | µs here at {options.mhz:g} MHz |\n|---|---|---|---|---|---|---|"
    )
    onnx_files = [*(options.models / f"{name}_qop.onnx" for name in NETWORKS), *options.variants]
    for line, network in enumerate(load(onnx_files, options.preset)):
        ours = measure(network).cycles
        here = f"{ours:,} | {{}} | {{}} | {microseconds(ours, options.mhz)} |"
        if line >= len(NETWORKS):
            print(f"| {network.name} | | | {here.format('', '')}", flush=True)
            continue
        theirs = found[NETWORKS[line]]
        ratios = ", ".join(f"{each.cycles / ours:.2f}" for each in theirs)
        times = ", ".join(microseconds(each.cycles, each.clock_mhz) for each in theirs)
        counts = " | ".join(f"{each.cycles:,}" for each in theirs)
        print(f"| {NETWORKS[line]} | {counts} | {here.format(ratios, times)}", flush=True)
    print(f"\nethos-u-vela {importlib.metadata.version('ethos-u-vela')}")
    if options.layers:
        for name in NETWORKS:
            print_layers(name, found[name][0])


if __name__ == "__main__":
    main()
