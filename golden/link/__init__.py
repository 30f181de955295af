"""The serial link between a host and a board: frames, COBS, rates, and the twin of the hardware that answers."""
