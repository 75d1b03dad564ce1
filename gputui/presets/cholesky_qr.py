"""QR of a tall matrix by its Gram matrix: few large matrix products instead of many small QRs.

A pass multiplies each block by the factors found so far and adds up qᵀq; its Cholesky factor is
the next one. Where squares leave the range of float64, a pass finds by how much to scale. Two
passes bring ‖qᵀq − I‖ to working precision for a matrix that is not too
ill-conditioned; where Cholesky fails, the Gram matrix is shifted, which takes one pass more.
The functions here are tasks: blocks stay on their device, and what travels between workers are
triangles of n (n + 1) / 2 numbers in host memory.

Source: T. Fukaya, R. Kannan, Y. Nakatsukasa, Y. Yamamoto, Y. Yanagisawa, "Shifted Cholesky QR for
computing the QR factorization of ill-conditioned matrices", SIAM J. Sci. Comput. 42 (2020).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gputui.errors import RunError
from gputui.presets import array_module, module_of, to_host

ORTHOGONAL_ENOUGH = 0.1
"""‖qᵀq − I‖ from which one more Cholesky step reaches working precision."""
LEAST_SQUARE, MOST_SQUARE = 2.0**-800, 2.0**900
"""Of a column: between them no square that matters is lost, or overflows when they are added."""
HALF_RANGE = 537
"""Exponents of float64: squares of smaller numbers are zero, of larger ones inf."""
INVERSE_CONDITION = 1e4
"""Of a factor (Frobenius): up to which its inverse is as good as a solve."""
EIGEN_CONDITION = 1e3
"""Up to which the small SVD goes through an eigenvalue problem, several times faster."""


Triangle = Any
"""Upper triangle of an n × n matrix: (n (n + 1) / 2,) float64 in host memory."""


@dataclass(frozen=True, slots=True)
class Factor:
    """The triangle of one pass."""

    triangle: Triangle
    """Of r."""
    deviation: float
    """‖qᵀq − I‖ before this pass (Frobenius)."""
    shifted: bool
    exponent: int = 0
    """Of the power of two by which this pass only divides; 0 for one that has a triangle."""

    @property
    def final(self) -> bool:
        """Whether q is orthonormal to working precision after this pass."""
        return self.deviation < ORTHOGONAL_ENOUGH and not self.shifted


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The outcome of a pass, from the factors of a matrix."""

    final: bool
    """Whether the vectors are orthonormal; if not, the other fields are meaningless."""
    u: Any = None
    """Left vectors of r = … r₂ r₁, (n, n) in host memory; None where only s was asked for."""
    s: Any = None
    """(n,), descending."""
    vt: Any = None
    """(n, n); None where only s was asked for."""

    def answer(self) -> tuple[bool, Any, Any]:
        """Return the part for the caller: (final, s, vt)."""
        return self.final, self.s, self.vt


def gram(blocks: Iterable[Any], factors: Sequence[Factor]) -> Triangle:
    """Return the sum of qᵀq over blocks (m, n), where q = block · r₁⁻¹ · r₂⁻¹ …"""
    total, steps = None, None
    for block in blocks:
        if steps is None:
            steps = _steps(module_of(block), factors)
        total = _plus_gram(total, _through(_as_float64(block), steps))
    if total is None:
        raise ValueError("no blocks")
    return to_host(_packed(total))


def _plus_gram(total: Any, q: Any) -> Any:
    """Return total + qᵀq, of which only the upper triangle counts: half the work of a product."""
    import numpy as np

    if isinstance(q, np.ndarray):
        product = q.T @ q
        return product if total is None else np.add(total, product, out=total)
    from cupy import cublas, zeros

    if total is None:
        total = zeros((q.shape[1], q.shape[1]))
    cublas.syrk("T", q, out=total, beta=1.0)
    return total


def add(triangles: Sequence[Triangle]) -> Triangle:
    """Return the sum of triangles."""
    total = triangles[0].copy()
    for each in triangles[1:]:
        total += each
    return total


def factor(
    triangles: Sequence[Triangle], rows: int, before: Sequence[Factor], backend: str
) -> Factor:
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
    matrix = _symmetric(xp, triangle)
    n = len(matrix)
    deviation = math.inf if first else float(xp.linalg.norm(matrix - xp.eye(n)))
    r = _cholesky(xp, matrix)
    shifted = r is None
    if r is None:
        shift = 11 * (rows * n + n * (n + 1)) * 2**-53 * float(xp.linalg.norm(matrix))
        r = _cholesky(xp, matrix + (shift or 1.0) * xp.eye(n))
    if r is None:
        r = xp.eye(n)
    return Factor(to_host(_packed(r)), deviation, shifted)


def _scale(triangle: Triangle, scaled: bool) -> int:
    """Return the power of two to divide by so that squares stay in range; 0 where they are.

    Raises RunError where they are not finite after that.
    """
    import numpy as np

    most = float(np.abs(triangle).max())
    if math.isfinite(most) and LEAST_SQUARE <= most <= MOST_SQUARE:
        return 0
    if most == 0:
        return 0 if scaled else -HALF_RANGE
    if math.isfinite(most):
        return math.frexp(most)[1] // 2
    if scaled:
        raise RunError("the matrix holds NaN or inf", hint="drop or replace such rows first")
    return HALF_RANGE


def conclude(factors: Sequence[Factor], vectors: bool, backend: str) -> Conclusion:
    """Decompose r = … r₂ r₁, where the last factor is final."""
    if not factors[-1].final:
        return Conclusion(False)
    xp = array_module(backend)
    first, *later = [each for each in factors if not each.exponent]
    r = _on_device(xp, first)
    for each in later:
        r = _on_device(xp, each) @ r
    u, s, vt = _svd_by_eigenvalues(xp, r) or xp.linalg.svd(r)
    s = xp.ldexp(s, sum(each.exponent for each in factors))
    if not vectors:
        return Conclusion(True, s=to_host(s))
    return Conclusion(True, to_host(u), to_host(s), to_host(vt))


def left_vectors(
    blocks: Iterable[Any], factors: Sequence[Factor], conclusion: Conclusion
) -> tuple[Any, ...]:
    """Return block · r₁⁻¹ · r₂⁻¹ … · u for each block, in the block's dtype and device."""
    found, steps = [], None
    for block in blocks:
        if steps is None:
            xp = module_of(block)
            steps = _merged([*_steps(xp, factors), Step(xp.asarray(conclusion.u))])
        found.append(_through(_as_float64(block), steps).astype(block.dtype, copy=False))
    return tuple(found)


def _as_float64(block: Any) -> Any:
    return block.astype("float64", copy=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A step from a block to q: a product with a matrix or a number, or a triangular solve."""

    factor: Any
    solve: bool = False


def _steps(xp: Any, factors: Sequence[Factor]) -> list[Step]:
    """Return how to multiply a block by r₁⁻¹ r₂⁻¹ …: by inverses as long as that loses nothing.

    A product with an inverse is one fast matrix product, but loses as many digits as r is
    ill-conditioned; a solve does not.
    """
    steps: list[Step] = []
    for each in factors:
        if each.exponent:
            steps.append(Step(2.0**-each.exponent))  # which loses nothing
            continue
        r = _on_device(xp, each)
        inverse = xp.linalg.inv(r)
        condition = float(xp.linalg.norm(r) * xp.linalg.norm(inverse))
        steps.append(Step(inverse) if condition < INVERSE_CONDITION else Step(r, solve=True))
    return _merged(steps)


def _merged(steps: list[Step]) -> list[Step]:
    """Return the steps with neighbouring products made one."""
    merged: list[Step] = []
    for step in steps:
        last = merged[-1] if merged else None
        if last and _is_product(step) and _is_product(last):
            merged[-1] = Step(last.factor @ step.factor)
        else:
            merged.append(step)
    return merged


def _through(block: Any, steps: Sequence[Step]) -> Any:
    """Return the block after all steps; the block itself is left as it is."""
    for step in steps:
        if step.solve:
            block = module_of(block).linalg.solve(step.factor.T, block.T).T
        else:
            block = block @ step.factor if _is_product(step) else block * step.factor
    return block


def _is_product(step: Step) -> bool:
    """Whether a step is a product of matrices."""
    return not step.solve and not isinstance(step.factor, float)


def _cholesky(xp: Any, matrix: Any) -> Any | None:
    """Return the upper Cholesky factor, or None where the matrix is not positive definite."""
    import numpy as np

    try:
        r = xp.linalg.cholesky(matrix).T
    except np.linalg.LinAlgError:
        return None
    finite = math.isfinite(float(xp.linalg.norm(r)))
    positive = bool((to_host(xp.diagonal(r)) > 0).all())
    return r if finite and positive else None


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
    u, s = u * xp.sign(s), abs(s)
    order = xp.argsort(-s)
    return u[:, order], s[order], v[:, order].T


def _packed(matrix: Any) -> Any:
    xp = module_of(matrix)
    return matrix[xp.triu_indices(len(matrix))]


def _unpacked(xp: Any, triangle: Any) -> Any:
    n = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    matrix = xp.zeros((n, n))
    matrix[xp.triu_indices(n)] = xp.asarray(triangle)
    return matrix


def _symmetric(xp: Any, triangle: Any) -> Any:
    upper = _unpacked(xp, triangle)
    return upper + xp.triu(upper, 1).T


def _on_device(xp: Any, each: Factor) -> Any:
    return _unpacked(xp, each.triangle)
