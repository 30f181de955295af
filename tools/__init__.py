"""What developers run beside the tests; none of it is shipped."""
