"""Input and output that need no model: files of users, standard streams, progress, configurations."""
