"""A lower bound of the variance of any set of items, as sums.

The variance of a set of items is a sum over pairs, which is too expensive for a bound over thousands of items. It is
bounded from below by two sums over single items: for every set S,

    variance(S)  >=  own(S) + common(S)^2,     own(S) = sum of own_i, common(S) = sum of common_i

Own is the independent variance of an item. Any diagonal matrix D with covariance - D still positive semidefinite is
valid; D is the variance of each item that the others do not explain (1 over the diagonal of the inverse), or simply the
variances, scaled down until that holds, whichever is larger. Common is how the rest of an item varies with the rest of
all items together: by the Cauchy-Schwarz inequality a positive semidefinite matrix B satisfies x'Bx >= (x'Be)^2 / e'Be
for the vector e of ones.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.linalg.lapack import dtrtri

from overlane.planning.allocation.model import FloatArray

# What the floor gives away for the rounding of its own arithmetic, relatively.
ROUNDING = 1e-7
INVERSE_ITERATIONS = 40
TRIALS = 40


@dataclass(frozen=True, slots=True, eq=False)
class VarianceFloor:
    """variance(S) >= own(S) + common(S)^2."""

    own: FloatArray
    common: FloatArray


def variance_floor(covariance: FloatArray) -> VarianceFloor:
    """The floor of a positive semidefinite covariance."""
    own = _own_part(covariance)
    rest = covariance.sum(axis=1) - own
    together = float(rest.sum())
    spread = float(np.trace(covariance))
    if together <= ROUNDING * spread:
        return VarianceFloor(own, np.zeros_like(own))
    return VarianceFloor(own, rest / np.sqrt(together + ROUNDING * spread))


def _own_part(covariance: FloatArray) -> FloatArray:
    """What of each item's variance the others leave unexplained, scaled down; nothing when the matrix is singular."""
    nothing = np.zeros(len(covariance))
    try:
        factor = cholesky(covariance, lower=True)
    except LinAlgError:
        return nothing
    inverse_factor, failed = dtrtri(factor, lower=1)
    explained = (inverse_factor**2).sum(axis=0)  # the diagonal of the inverse
    if failed or not np.isfinite(explained).all():
        return nothing
    scale = np.sqrt(explained)
    scaled = covariance * np.outer(scale, scale)
    share = _least_eigenvalue(scaled, factor * scale[:, None])
    for _ in range(TRIALS):
        share *= 1 - ROUNDING
        if _is_positive(scaled, share):
            own: FloatArray = share / explained
            return own
        share *= 0.95
    return nothing


def _least_eigenvalue(matrix: FloatArray, factor: FloatArray) -> float:
    """Close to the least eigenvalue, from above: inverse iteration on the factored matrix."""
    vector = np.cos(np.arange(len(matrix)))  # any start that is not orthogonal to what is looked for
    for _ in range(INVERSE_ITERATIONS):
        vector = cho_solve((factor, True), vector, check_finite=False)
        vector /= np.linalg.norm(vector)
    return float(vector @ (matrix @ vector))


def _is_positive(matrix: FloatArray, shift: float) -> bool:
    shifted = matrix.copy()
    shifted[np.diag_indices(len(matrix))] -= shift
    try:
        cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return False
    return True
