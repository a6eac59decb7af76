"""Designs on a processor by a core in C that is compiled when the package is installed.

`core/` holds the method for one filter: each header follows the module of `synthesis` that it names, and is tested
against it. `build` compiles it, `library` loads what suits the processor, `layout` brings a model into its form and
`backend` is the seam.
"""

from synthesis.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
