"""QR of a tall matrix by its Gram matrix: few large matrix products instead of many small QRs.

A pass multiplies each block by the factors found so far and adds up qᵀq; its Cholesky factor is
the next one. Where squares leave the range of float64, a pass finds by how much to scale. Two
passes bring ‖qᵀq − I‖ to working precision for a matrix that is not too ill-conditioned; where
Cholesky fails, the Gram matrix is shifted, which takes one pass more. The public functions here
are the tasks of `svd.py`: blocks stay on their device, and workers exchange triangles: the upper
triangle of an n × n matrix as (n (n + 1) / 2,) float64 in host memory.

Source: T. Fukaya, R. Kannan, Y. Nakatsukasa, Y. Yamamoto, Y. Yanagisawa, "Shifted Cholesky QR for
computing the QR factorization of ill-conditioned matrices", SIAM J. Sci. Comput. 42 (2020).
"""

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from gputui.errors import RunError
from gputui.presets import array_module, module_of, to_host

ORTHOGONAL_ENOUGH = 0.1  # ‖qᵀq − I‖ from which one more step reaches working precision
LEAST_SQUARE, MOST_SQUARE = 2.0**-800, 2.0**900
# Of a column: between them no square that matters is lost, or overflows when they are added.
HALF_RANGE = 537  # exponents of float64: squares of smaller numbers are zero, of larger ones inf
INVERSE_CONDITION = 1e4  # of a factor (Frobenius): up to here its inverse is as good as a solve
EIGEN_CONDITION = 1e3  # up to here the small SVD goes through eigenvalues, several times faster


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor r of one pass.

    `deviation` is ‖qᵀq − I‖ before the pass (Frobenius). A pass with an exponent only divides by
    that power of two; others have exponent 0.
    """

    triangle: Any
    deviation: float
    shifted: bool
    exponent: int = 0

    @property
    def final(self) -> bool:
        """Whether q is orthonormal to working precision after this pass."""
        return self.deviation < ORTHOGONAL_ENOUGH and not self.shifted


def gram(blocks: Iterable[Any], factors: Sequence[Factor]) -> Any:
    """Return the triangle of the sum of qᵀq over blocks (m, n), q = block · r₁⁻¹ · r₂⁻¹ …"""
    total, steps = None, None
    for block in blocks:
        xp = module_of(block)
        steps = _steps(xp, factors) if steps is None else steps
        q = _through(block.astype("float64", copy=False), steps)
        total = xp.zeros((q.shape[1], q.shape[1])) if total is None else total
        if xp.__name__ == "cupy":
            from cupy import cublas

            cublas.syrk("T", q, out=total, beta=1.0)  # the upper triangle only: half the work
        else:
            total += q.T @ q
    return to_host(_packed(total))


def add(triangles: Sequence[Any]) -> Any:
    """Return the sum of triangles."""
    return reduce(operator.add, triangles)


def factor(triangles: Sequence[Any], rows: int, before: Sequence[Factor], backend: str) -> Factor:
    """Return the Cholesky factor of the sum of Gram matrices, shifted where it has none.

    They are over `rows` rows, after the factors before. Where not even that exists it is the
    identity, marked as shifted: never final. Where squares were lost or overflowed it is a scale.

    Raises:
        RunError: the data hold NaN or inf.
    """
    triangle = add(triangles)
    first = all(each.exponent for each in before)
    exponent = _scale(triangle, scaled=bool(before)) if first else 0
    if exponent:
        return Factor(triangle, math.inf, True, exponent)
    xp = array_module(backend)
    upper = _unpacked(xp, triangle)
    matrix, n = upper + xp.triu(upper, 1).T, len(upper)
    deviation = math.inf if first else float(xp.linalg.norm(matrix - xp.eye(n)))
    r = _cholesky(xp, matrix)
    shifted = r is None
    if shifted:
        shift = 11 * (rows * n + n * (n + 1)) * 2**-53 * float(xp.linalg.norm(matrix))
        r = _cholesky(xp, matrix + (shift or 1.0) * xp.eye(n))
    return Factor(to_host(_packed(xp.eye(n) if r is None else r)), deviation, shifted)


def _scale(triangle: Any, scaled: bool) -> int:
    """Return the power of two to divide by so that squares stay in range; 0 where they are.

    Raises RunError where they are not finite after that.
    """
    most = float(abs(triangle).max())
    if math.isfinite(most) and LEAST_SQUARE <= most <= MOST_SQUARE:
        return 0
    if most == 0:
        return 0 if scaled else -HALF_RANGE
    if math.isfinite(most):
        return math.frexp(most)[1] // 2
    if scaled:
        raise RunError("the matrix holds NaN or inf", hint="drop or replace such rows first")
    return HALF_RANGE


def conclude(factors: Sequence[Factor], vectors: bool, backend: str) -> tuple[Any, Any]:
    """Decompose r = … r₂ r₁; return its left vectors (n, n), and (final, s, vt) for the caller.

    All are in host memory. Where the last factor is not final, or only s was asked for, the others
    are None.
    """
    if not factors[-1].final:
        return None, (False, None, None)
    xp = array_module(backend)
    triangles = [_unpacked(xp, each.triangle) for each in factors if not each.exponent]
    r = reduce(lambda product, each: each @ product, triangles)
    u, s, vt = _svd_by_eigenvalues(xp, r) or xp.linalg.svd(r)
    s = to_host(xp.ldexp(s, sum(each.exponent for each in factors)))
    return (to_host(u), (True, s, to_host(vt))) if vectors else (None, (True, s, None))


def left_vectors(
    blocks: Iterable[Any], factors: Sequence[Factor], conclusion: tuple[Any, Any]
) -> tuple[Any, ...]:
    """Return block · r₁⁻¹ · r₂⁻¹ … · u for each block, in the block's dtype and device."""
    found, steps = [], None
    for block in blocks:
        steps = _steps(module_of(block), factors, conclusion[0]) if steps is None else steps
        left = _through(block.astype("float64", copy=False), steps)
        found.append(left.astype(block.dtype, copy=False))
    return tuple(found)


def _steps(xp: Any, factors: Sequence[Factor], u: Any = None) -> list[tuple[Any, bool]]:
    """Return how to multiply a block by r₁⁻¹ r₂⁻¹ … u: matrices or numbers, and whether to solve.

    A product with an inverse is one fast matrix product, but loses as many digits as r is
    ill-conditioned; a solve does not. Neighbouring products of matrices are made one.
    """
    steps: list[tuple[Any, bool]] = []
    for each in factors:
        if each.exponent:
            steps.append((2.0**-each.exponent, False))  # exact
            continue
        r = _unpacked(xp, each.triangle)
        inverse = xp.linalg.inv(r)
        condition = float(xp.linalg.norm(r) * xp.linalg.norm(inverse))
        steps.append((inverse, False) if condition < INVERSE_CONDITION else (r, True))
    if u is not None:
        steps.append((xp.asarray(u), False))
    merged = steps[:1]
    for step in steps[1:]:
        last, solves = merged[-1]
        if solves or step[1] or isinstance(last, float):
            merged.append(step)
        else:
            merged[-1] = last @ step[0], False
    return merged


def _through(block: Any, steps: Sequence[tuple[Any, bool]]) -> Any:
    """Return the block after all steps; the block itself is left as it is."""
    for each, solves in steps:
        if solves:
            block = module_of(block).linalg.solve(each.T, block.T).T
        else:
            block = block * each if isinstance(each, float) else block @ each
    return block


def _cholesky(xp: Any, matrix: Any) -> Any | None:
    """Return the upper Cholesky factor, or None where the matrix is not positive definite."""
    import numpy as np

    try:
        r = xp.linalg.cholesky(matrix).T
    except np.linalg.LinAlgError:
        return None
    finite = math.isfinite(float(xp.linalg.norm(r)))
    return r if finite and bool((xp.diagonal(r) > 0).all()) else None


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


def _packed(matrix: Any) -> Any:
    return matrix[module_of(matrix).triu_indices(len(matrix))]


def _unpacked(xp: Any, triangle: Any) -> Any:
    n = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    matrix = xp.zeros((n, n))
    matrix[xp.triu_indices(n)] = xp.asarray(triangle)
    return matrix
