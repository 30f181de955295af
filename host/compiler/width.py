"""Width: whether wide windows make a network faster as a whole.

An operation chooses its windows by its own cycles, see :mod:`.lower.wide_windows`. They have more weights and
parameters, and results come faster: what that does to the rest of a network, only a whole plan tells.
"""

from __future__ import annotations

from collections.abc import Callable

from .network import CompileError
from .plan import Spread


def fastest(plan: Callable[[bool], Spread]) -> Spread:
    """The faster of two plans; where wide windows gain nothing, or need more than there is, that without them.

    Parameters
    ----------
    plan : callable
        Plans a network up to its predicted cycles. Takes whether windows may compute several pixels.

    Raises
    ------
    CompileError
        If the network does not fit the configuration without wide windows either.
    """
    try:
        wide = plan(True)
    except CompileError:
        return plan(False)
    if all(operation.pixels == 1 for core in wide.plans for operation in core.operations):
        return wide
    return min((plan(False), wide), key=lambda found: found.predicted_cycles)
