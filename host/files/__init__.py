"""What needs no model: files that users hand in and get, standard streams, progress, configurations."""
