"""The command line: its options, the commands, and their answers."""
