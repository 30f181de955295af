"""What is done in the course of a training: connections activated, densities tried, checkpoints."""
