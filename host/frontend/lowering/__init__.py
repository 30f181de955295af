"""How fragments become layers: a file for each kind of fragment."""
