"""Export to integrators: a model as C with the driver in C99, a core for FuseSoC, scripts and a LiteX module."""
