"""Files read into the fields of requests, for the command and the library."""
