"""The header `design.h`: what ``harness.cpp`` must know of a configuration's model."""

from __future__ import annotations

import re

from ...golden import pins
from ...golden.config import Config
from .toolchain import ToolError


def design(root_header: str, config: Config) -> str:
    """The text of the header.

    Parameters
    ----------
    root_header : str
        Verilator's, of the model.
    config : Config

    Raises
    ------
    ToolError
        If the model has not the memories of the configuration's cores.
    """
    cluster = config.cluster
    banks = {bank: _banks(bank, root_header, cluster.cores) for bank in ("even", "odd")}
    ports, traces = pins.masters(cluster), pins.traces(cluster)
    lines = [
        "#pragma once",
        f"#define LUTTERFLY_DATA_BYTES {config.axi.data_bytes}",
        f"#define LUTTERFLY_LANES {config.array.lanes}",
        f"#define LUTTERFLY_FEATURE_BYTES {config.memory.feature_bytes}",
        f"#define LUTTERFLY_PORTS {cluster.ports}",
        f"#define LUTTERFLY_CORES {cluster.cores}",
        f"#define LUTTERFLY_CLOCK top_.{pins.CLOCK}",
        f"#define LUTTERFLY_RESET_N top_.{pins.RESET}",
        f"#define LUTTERFLY_CONTROL(pin) top_.{pins.SLAVE}_##pin",
        *(f"#define LUTTERFLY_PIN_{name}(pin) top_.{name}_##pin" for name in (*ports, *traces)),
        f"#define LUTTERFLY_EACH_PORT(X) {' '.join(f'X({at}, LUTTERFLY_PIN_{name})' for at, name in enumerate(ports))}",
        "#define LUTTERFLY_EACH_CORE(X) "
        + " ".join(
            f"X({at}, LUTTERFLY_PIN_{name}, {even}, {odd})"
            for at, (name, even, odd) in enumerate(zip(traces, banks["even"], banks["odd"], strict=True))
        ),
    ]
    return "\n".join(lines) + "\n"


def _banks(bank: str, root_header: str, cores: int) -> list[str]:
    """Where each core's bank of the feature memory is in the model."""
    found = re.findall(rf"^ *VlUnpacked<.*> (\w*feature_memory__DOT__{bank}__DOT__storage);", root_header, re.MULTILINE)
    of_core = [[name for name in found if cores == 1 or f"core_{number}__DOT__" in name] for number in range(cores)]
    if any(len(names) != 1 for names in of_core):
        raise ToolError(f"the model must have one {bank} bank of the feature memory for each core, not {len(found)}")
    return [name for (name,) in of_core]
