"""Requests: bodies that validate what is sent by HTTP, the client, the command and the library alike."""
