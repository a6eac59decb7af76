"""The answers of functions, commands and addresses: every field once, with its unit, range and text.

The service fills and documents them, the client and the library return them, and files on disk are their JSON.
"""

# ruff: noqa: F403  # the names of all answers, of which there are fifty
from prime_anc.answers.designs import *
from prime_anc.answers.measurements import *
from prime_anc.answers.model import *
from prime_anc.answers.service import *
