"""Symmetric Toeplitz matrices and circulant preconditioners, as operators that know `@`."""

from __future__ import annotations

import torch
from torch import Tensor


class SymmetricToeplitz:
    """T[m, n] = t[|m - n|], applied through a circulant of twice the size: two 2n-point transforms."""

    def __init__(self, first_column: Tensor) -> None:
        """first_column: real [batch, n]."""
        self.first_column = first_column
        n = first_column.shape[-1]
        embedding = torch.cat(
            (first_column, torch.zeros_like(first_column[..., :1]), first_column[..., 1:].flip(-1)), dim=-1
        )
        self._n = n
        # The embedding is even, so its transform is real; dropping the rounding keeps T exactly symmetric.
        self._spectrum = torch.fft.rfft(embedding).real

    def __matmul__(self, vector: Tensor) -> Tensor:
        """T v for real [batch, n] vectors."""
        product = torch.fft.irfft(self._spectrum * torch.fft.rfft(vector, n=2 * self._n), n=2 * self._n)
        return product[..., : self._n]


class CirculantPreconditioner:
    """The inverse of a circulant matrix, applied by two n-point transforms."""

    def __init__(self, eigenvalues: Tensor) -> None:
        """eigenvalues: real, positive, of the one-sided spectrum, [batch, n // 2 + 1]."""
        self._inverse = 1 / eigenvalues

    @classmethod
    def strang(cls, toeplitz: SymmetricToeplitz, floor: Tensor) -> CirculantPreconditioner:
        """Strang's choice: the central diagonals of T, wrapped around (Strang 1986, Stud. Appl. Math. 74).

        floor: smallest eigenvalue admitted, [batch, 1], > 0. The wrapped matrix of a definite T need not be
        definite itself; with the damping as its floor the preconditioner is.
        """
        column = toeplitz.first_column
        n = column.shape[-1]
        wrapped = torch.cat((column[..., : n // 2 + 1], column[..., 1 : (n + 1) // 2].flip(-1)), dim=-1)
        return cls(torch.maximum(torch.fft.rfft(wrapped).real, floor))

    def __matmul__(self, vector: Tensor) -> Tensor:
        """C^-1 v for real [batch, n] vectors."""
        return torch.fft.irfft(self._inverse * torch.fft.rfft(vector), n=vector.shape[-1])
