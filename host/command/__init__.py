"""The command line: its words, what the commands do, and what they answer."""
