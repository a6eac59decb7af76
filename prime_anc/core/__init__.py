"""The method for one filter in C, compiled when the package is installed.

The headers in `c/` follow the module of `prime_anc.method` with their name, and are tested against it. `build` compiles
them, `library` loads what suits the processor and brings a model into their form, `core` calls them.
"""

from prime_anc.core.core import Core

__all__ = ["Core"]
