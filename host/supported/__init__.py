"""What is supported: the list of operators, as text, as values and as a page of the documentation."""
