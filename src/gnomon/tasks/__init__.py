"""SQL tasks: the owner of each task table, and its engines."""
