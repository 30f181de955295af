"""The stages of the multiplier array: the one table of the engines that work in it."""

from __future__ import annotations

from ...golden.config import Config
from ...golden.engines import DEPTHWISE, MAC, WINOGRAD, XNOR, find_engine
from .depthwise import DepthwiseStage
from .multipliers import LoanStage, borrowed_columns
from .stage import ArrayStage
from .winograd import WinogradStage
from .xnor import XnorStage

__all__ = ["STAGES", "stages_of"]

#: The stage of each engine, in the order in which words pass: an engine of the array is one line here.
STAGES: dict[int, type[ArrayStage]] = {
    MAC: ArrayStage,
    # Winograd's words are wider than bytes, and its weights come later, so that other stages follow it.
    WINOGRAD: WinogradStage,
    DEPTHWISE: DepthwiseStage,
    XNOR: XnorStage,
}


def stages_of(config: Config) -> list[ArrayStage]:
    """Return the stages of a configuration, in order; the last one is that of loans, if other engines borrow
    multipliers."""
    stages = [kind(config, find_engine(code)) for code, kind in STAGES.items() if code in config.engines]
    return [*stages, LoanStage(config)] if borrowed_columns(config) else stages
