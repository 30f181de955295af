"""AXI: signatures, bursts, and the guard at the pins."""
