"""What is simulated: a top level, and the harness around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ...golden.config import Config
from ...golden.pins import CLOCK
from .design import design


@dataclass(frozen=True, slots=True)
class Top:
    """A top level, and the harness around it.

    Attributes
    ----------
    module : str
        Of ``lutterfly.hdl``; its ``generate(config, asserted=..., **settings)`` gives the Verilog.
    settings : tuple of (str, int)
        What it is generated with beside the configuration.
    is_rewritten : bool
        Whether the Verilog takes another form, which simulates faster. A netlist does not: it is simulated as it is.
    harness : tuple of Path
        The source that is compiled with the model, and the headers that it includes beside ``design.h``.
    header : callable
        From Verilator's header of the model and the configuration to the text of ``design.h``.
    clock : str
        The name of its pin.
    """

    module: str
    harness: tuple[Path, ...]
    header: Callable[[str, Config], str]
    settings: tuple[tuple[str, int], ...] = ()
    clock: str = "clk"
    is_rewritten: bool = True


#: The accelerator as others take it into a design.
IP = Top("top_ip", tuple(Path(__file__).parent / name for name in ("harness.cpp", "axi_memory.h")), design, (), CLOCK)
#: The same with the pins of its trace, as the harness of registers and external memory has it.
AXI = replace(IP, settings=(("trace", True),))
