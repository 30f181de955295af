"""From a trained float model to fixed point: replacement, folding, calibration."""
