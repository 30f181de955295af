"""Dependencies between the channels of layers: connection patterns, dead channels, dimension folding."""
