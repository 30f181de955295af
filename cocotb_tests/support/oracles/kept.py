"""Keeps generated networks on which something failed: hypothesis shrinks them, and the smallest is a regression."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, settings

from cocotb_tests.support.networks.generated import Generated

#: Every network here is tried by ``test_generated_networks.py`` ever after. Give a new one a name that says what was
#: wrong, and commit it with what makes it right.
REGRESSIONS = Path(__file__).parents[2] / "regressions"
#: In the file, where it is to be tried on another accelerator than the presets: its configuration.
CONFIG_KEY = "lutterfly.config"
#: A slow machine is no failure, and neither is a network that is slow to draw. Of several failures one is shrunk, which
#: is executed once more at the end: so what is kept is the smallest.
PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, report_multiple_bugs=False)


@contextlib.contextmanager
def kept(network: Generated, name: str, folder: Path = REGRESSIONS) -> Iterator[None]:
    """Write the network to ``folder`` if the body fails, over the one that failed before under this name."""
    try:
        yield
    except Exception as error:
        path = folder / f"failing_{name}.onnx"
        path.write_bytes(network.model)
        error.add_note(f"{network.text}; kept as {path}")
        raise
