"""The kinds of layers, each in a file of its own, and what some of them have in common."""
