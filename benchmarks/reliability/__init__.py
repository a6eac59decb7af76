"""One script for each line of the reliability table: against a real service in a process of its own."""
