"""Export to integrators: a model as C with the driver in C99."""
