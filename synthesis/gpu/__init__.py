"""The served design on a CUDA device: a few kernels in Triton in the place of some hundred of torch's.

Small arrays keep a GPU waiting for launches, not for arithmetic. Each module names the reference that it follows
and is tested against it, without a GPU in Triton's interpreter (`TRITON_INTERPRET=1`).
"""

from synthesis.gpu.served import served

__all__ = ["served"]
