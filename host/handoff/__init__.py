"""What integrators are handed: a model as C, the driver for it in C99, a core file for FuseSoC."""
