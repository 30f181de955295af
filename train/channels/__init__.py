"""Dependencies between the channels of a model's layers, read from a trace of it."""
