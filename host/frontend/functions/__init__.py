"""The model's functions that are layers, recognised by their bodies."""
