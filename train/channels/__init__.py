"""Which layers' channels depend on which, read from a trace of the model."""
