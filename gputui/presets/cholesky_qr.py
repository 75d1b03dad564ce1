"""QR of a tall matrix by its Gram matrix: few large matrix products instead of many small QRs.

A pass adds up qᵀq over the blocks; its Cholesky factor r makes q · r⁻¹ nearly orthonormal, and a
second pass makes it so to working precision. Where the matrix is too ill-conditioned for that, the
factor is None, and the caller takes another method. The public functions here are the tasks of
`svd.py`: blocks stay on their device, and workers exchange upper triangles: (n, n) float64 in host
memory, 0 below the diagonal.

Source: Y. Yamamoto, Y. Nakatsukasa, Y. Yanagisawa, T. Fukaya, "Roundoff error analysis of the
CholeskyQR2 algorithm", Electron. Trans. Numer. Anal. 44 (2015).
"""

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from gputui.presets import array_module, module_of, to_host

CONDITION_A_COLUMN = 30  # ‖r‖ ‖r⁻¹‖ (Frobenius): up to here a product with r⁻¹ keeps the digits
EIGEN_CONDITION = 1e3  # up to here the small SVD goes through eigenvalues, several times faster


def gram(blocks: Iterable[Any], factors: Sequence[Any]) -> Any:
    """Return the triangle of the sum of qᵀq over blocks (m, n), q = block · r₁⁻¹ · r₂⁻¹ …

    None where one of the factors is.
    """
    if any(each is None for each in factors):
        return None
    total, step = None, None
    for block in blocks:
        xp, q = module_of(block), block.astype("float64", copy=False)
        if factors:
            step = _inverse(xp, factors) if step is None else step
            q = q @ step
        total = xp.zeros((q.shape[1], q.shape[1])) if total is None else total
        if xp.__name__ == "cupy":
            from cupy import cublas

            cublas.syrk("T", q, out=total, beta=1.0)  # the upper triangle only: half the work
        else:
            total += q.T @ q
    return to_host(xp.triu(total))


def add(triangles: Sequence[Any]) -> Any:
    """Return the sum of triangles."""
    return None if triangles[0] is None else reduce(operator.add, triangles)


def factor(triangles: Sequence[Any], backend: str) -> Any:
    """Return the triangle of the Cholesky factor of the sum of Gram matrices.

    None where they have no such factor, and where its inverse would lose digits.
    """
    import numpy as np

    triangle = add(triangles)
    if triangle is None:
        return None
    xp = array_module(backend)
    upper = xp.asarray(triangle)
    try:
        r = xp.linalg.cholesky(upper + xp.triu(upper, 1).T).T
        condition = float(xp.linalg.norm(r) * xp.linalg.norm(xp.linalg.inv(r)))
    except np.linalg.LinAlgError:
        return None
    # CuPy says of no matrix that it is not positive definite.
    is_factor = bool((xp.diagonal(r) > 0).all())
    return to_host(r) if is_factor and condition <= CONDITION_A_COLUMN * len(r) else None


def conclude(factors: Sequence[Any], vectors: bool, backend: str) -> tuple[Any, Any]:
    """Decompose r = … r₂ r₁; return its left vectors (n, n), and (s, vt) for the caller.

    All are in host memory. Where a factor is None, or only s was asked for, the others are None.
    """
    if factors[-1] is None:
        return None, (None, None)
    xp = array_module(backend)
    r = reduce(operator.matmul, map(xp.asarray, reversed(factors)))
    u, s, vt = _svd_by_eigenvalues(xp, r) or xp.linalg.svd(r)
    return (to_host(u), (to_host(s), to_host(vt))) if vectors else (None, (to_host(s), None))


def left_vectors(
    blocks: Iterable[Any], factors: Sequence[Any], conclusion: tuple[Any, Any]
) -> tuple[Any, ...]:
    """Return block · r₁⁻¹ · r₂⁻¹ … · u for each block, in the block's dtype and device."""
    found, step = [], None
    for block in blocks:
        xp = module_of(block)
        step = _inverse(xp, factors) @ xp.asarray(conclusion[0]) if step is None else step
        found.append((block.astype("float64", copy=False) @ step).astype(block.dtype, copy=False))
    return tuple(found)


def _inverse(xp: Any, factors: Sequence[Any]) -> Any:
    """Return r₁⁻¹ r₂⁻¹ …"""
    return reduce(operator.matmul, (xp.linalg.inv(xp.asarray(each)) for each in factors))


def _svd_by_eigenvalues(xp: Any, r: Any) -> tuple[Any, Any, Any] | None:
    """Return the SVD of r from the eigenvectors of rᵀr; None where that would lose digits.

    With rᵀr = v w vᵀ the columns of r v are orthogonal up to rounding times the condition
    number; their QR makes them orthonormal to working precision, and its diagonal holds the
    singular values to working precision, because errors of v enter them squared.
    """
    values, v = xp.linalg.eigh(r.T @ r)
    if not float(values[0]) * EIGEN_CONDITION**2 > float(values[-1]):
        return None
    v = v[:, ::-1]
    u, upper = xp.linalg.qr(r @ v)
    s = xp.diagonal(upper)
    order = xp.argsort(-abs(s))
    return (u * xp.sign(s))[:, order], abs(s)[order], v[:, order].T
