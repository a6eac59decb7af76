"""Backend for an NVIDIA GPU: the stages of a design are recorded as CUDA graphs and replayed over fixed buffers."""

from prime_anc.method.backends.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
