"""`prime-anc`: measure, design, check and export from the command line, with or without a running service."""
