"""What is raised for a file that cannot be used."""


class FileError(ValueError):
    """A file that cannot be used; the message says which, what is wrong and what to do."""
