"""Tools of developers beside the tests; they are not shipped."""
