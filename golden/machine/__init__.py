"""The golden machine: executes programs as the hardware does."""
