"""What layers compute, in integers, to the byte."""
