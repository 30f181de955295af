"""What every unit is built from."""
