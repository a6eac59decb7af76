"""The method in Triton kernels: a few launches where torch's operators take hundreds.

Small arrays keep a GPU waiting for launches, not for arithmetic. Each module has the name of the torch module whose
mathematics it follows (`synthesis.features`, `synthesis.toeplitz`, ...) and is tested against it in float64, on a
machine without a GPU in Triton's interpreter (`TRITON_INTERPRET=1`). All of it is float32 and has no derivatives.
"""
