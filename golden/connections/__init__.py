"""Which channels of a layer depend on which: connection patterns, dead channels, dimension folding."""
