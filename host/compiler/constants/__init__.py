"""Where weights, parameters, tables and step lists lie, and what is loaded in every inference."""
