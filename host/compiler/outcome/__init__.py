"""What comes of compiling: the program, and what is decided in it, for people."""
