"""Which mistakes of a measurement are found, and which right measurements are refused."""
