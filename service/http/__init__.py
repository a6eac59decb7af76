"""The endpoints: each reads a request, has the other packages work on it, and writes the answer."""
