"""The accelerator in Amaranth: engines, memories, buses and the top levels."""
