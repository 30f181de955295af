"""The program: what the compiler gives to driver and golden machine, and its file."""
