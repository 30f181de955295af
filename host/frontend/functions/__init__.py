"""Functions of the model that are layers: recognised by their bodies."""
