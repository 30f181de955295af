"""Transports to an accelerator: the serial link to a board, its simulated twin, and Linux UIO on this machine."""
