"""The method in Triton kernels: a few launches where torch operators take hundreds.

With arrays this small, launches determine the time on a GPU, not arithmetic. Each module but `fft` has the name of
the torch module whose mathematics it implements (`synthesis.features`, `synthesis.toeplitz`, ...) and is tested
against torch, without a GPU in Triton's interpreter (`TRITON_INTERPRET=1`). All kernels are float32, without
gradients.
"""
