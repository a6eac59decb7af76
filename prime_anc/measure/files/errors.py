"""Error of a file that cannot be used."""


class FileError(ValueError):
    """A file cannot be used; the message names the file, the fault and the remedy."""
