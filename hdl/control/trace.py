"""What the core tells a performance trace."""

from amaranth.lib import wiring
from amaranth.lib.wiring import Out

__all__ = ["TraceSignature"]


class TraceSignature(wiring.Signature):
    """Pulses of one cycle for the performance trace, each registered.

    Members
    -------
    compute_issue_first, compute_issue_last : Out(1)
        The first, the last step of a COMPUTE command has been issued.
    compute_done : Out(1)
        A COMPUTE command has completed.
    dma_begin, dma_done : Out(1)
        A LOAD, STORE, FILL or BARRIER has been handed to its unit, or has completed.
    """

    def __init__(self):
        names = ("compute_issue_first", "compute_issue_last", "compute_done", "dma_begin", "dma_done")
        super().__init__(dict.fromkeys(names, Out(1)))
