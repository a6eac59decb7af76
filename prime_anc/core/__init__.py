"""Designs on a processor by a core in C that is compiled when the package is installed.

`c/` holds the method for one filter: headers follow the module of `prime_anc.method` with their name, and are tested
against it. `build` compiles it, `library` loads what suits the processor and brings a model into its form, `backend`
calls it.
"""

from prime_anc.core.backend import CpuBackend

__all__ = ["CpuBackend"]
