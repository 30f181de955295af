"""The lowering from layers to operations, which make COMPUTE commands and constants."""
