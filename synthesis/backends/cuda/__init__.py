"""A backend for an NVIDIA GPU: a design's stages are recorded as CUDA graphs and replayed over fixed buffers."""

from synthesis.backends.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
