"""The specification: configuration, instruction set, registers, and what every operation computes."""
