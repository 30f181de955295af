"""The compute unit: it finds the steps of COMPUTE commands and joins memories, engines and results."""
