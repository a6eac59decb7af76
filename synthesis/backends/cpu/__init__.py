"""Designs on a processor by a core in C that is compiled when the package is installed.

`core/` holds the method for one filter: headers follow the module of `synthesis` with their name, and are tested
against it. `build` compiles it, `library` loads what suits the processor and brings a model into its form, `backend`
calls it.
"""

from synthesis.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
