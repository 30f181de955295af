"""What nextpnr has placed: how long its paths are likely to be, and registers that stand far off."""
