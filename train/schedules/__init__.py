"""Schedules of a training: activation of connections, trials of densities, checkpoints."""
