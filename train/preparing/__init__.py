"""From a trained float model to fixed point: replaced, folded, calibrated."""
