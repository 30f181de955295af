"""A core file for FuseSoC: what others need to take the generated Verilog into a design.

Source: CAPI2, the core description of FuseSoC (fusesoc.readthedocs.io, "CAPI2 Reference").
"""

from __future__ import annotations

import importlib.metadata
import json

from ...golden.config import Config
from ...golden.pins import MODULE


def core_text(verilog: str, config: Config) -> str:
    """The core file, given the name of the Verilog file beside it."""
    version = importlib.metadata.version("lutterfly")
    words = f"Neural-network accelerator, {config.cores} x {config.multipliers} multipliers, hash {config.hash:#010x}"
    # A string of JSON is one of YAML.
    return f"""\
CAPI=2:
name: ::{MODULE}:{version}
description: {json.dumps(words)}

filesets:
  rtl:
    files:
      - {json.dumps(verilog)}
    file_type: verilogSource

targets:
  default: &default
    filesets: [rtl]
    toplevel: {MODULE}
  lint:
    <<: *default
    flow: lint
    flow_options:
      tool: verilator
      verilator_options: ["-Wno-fatal"]
"""
