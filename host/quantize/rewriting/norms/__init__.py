"""Normalisation: by constants, and by what is normalised."""
