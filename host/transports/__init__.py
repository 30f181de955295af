"""Transports to an accelerator: the serial link to a board, and its simulated twin."""
