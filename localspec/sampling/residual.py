"""The target's side of speculative sampling at one node: test guesses in turn, keep what is left of p.

Leviathan et al., arXiv 2211.17192, for one guess; several in turn as in SpecInfer, arXiv 2305.09781, here
drawn without replacement: after a rejection both the target's law and the guesser's are updated, so the next
test is again that of one guess.
"""

from __future__ import annotations

import numpy as np

from localspec.sampling.law import Law
from localspec.sampling.noise import Stream, gumbel, uniform


class ResidualDraw:
    """Implements `localspec.spec.accept.Residual`. Belongs to one walk; a rejection changes it.

    Args:
        target: p, the request's distribution at the node.
        law: q, what the candidates were drawn from without replacement, or ``None`` if no chance chose them;
            then each stands with its probability p(x): the same test with all of q on x.
        seed, index: of the output position; with the rank of a candidate they key the noise of its test.
        node: keys the noise of the draw from what is left.
    """

    __slots__ = ("_ids", "_index", "_law", "_node", "_p", "_q", "_seed")

    def __init__(self, target: Law, law: Law | None, *, seed: int, index: int, node: int) -> None:
        self._ids = target.ids
        self._p = np.exp(target.logp)
        self._p /= self._p.sum()
        self._law = law
        self._q = np.exp(law.logp) if law is not None else None
        self._seed, self._index, self._node = seed, index, node

    @property
    def left(self) -> Law:
        """The target's law after the rejections so far."""
        live = np.flatnonzero(self._p > 0)
        return Law(self._ids[live], np.log(self._p[live]))

    def chance(self, token: int) -> float:
        """Probability that ``token``, being the next candidate, stands: min(1, p / q)."""
        at = int(np.searchsorted(self._ids, token))
        p = float(self._p[at]) if at < len(self._ids) and self._ids[at] == token else 0.0
        if self._q is None:
            return min(p, 1.0)
        q = self._q[self._at(token)] / self._q.sum()
        return 1.0 if p >= q else p / float(q)

    def accepts(self, token: int, rank: int) -> bool:
        """Tests the ``rank``-th candidate of the node; a rejection leaves the residual.

        Raises:
            ValueError: ``token`` cannot have been drawn from the law: it is not in it, or was drawn before.
        """
        if uniform(self._seed, Stream.ACCEPT, self._index, (rank,))[0] < self.chance(token):
            return True
        self.reject(token)
        return False

    def reject(self, token: int) -> None:
        """Takes out a candidate that failed: p becomes max(p - q, 0), q loses ``token``, both normalised."""
        if self._law is None or self._q is None:
            rest = np.where(self._ids == token, 0.0, self._p)
        else:
            q = self._q / self._q.sum()
            rest = self._p.copy()
            at = np.minimum(np.searchsorted(self._ids, self._law.ids), len(self._ids) - 1)
            shared = self._ids[at] == self._law.ids
            rest[at[shared]] = np.maximum(rest[at[shared]] - q[shared], 0.0)
            self._q[self._at(token)] = 0.0
        total = rest.sum()
        # Nothing left means p = q up to rounding, where a rejection has a chance of about 1e-16: p will do.
        if total > 0:
            self._p = rest / total

    def draw(self) -> int:
        """A token from what is left."""
        left = self.left
        return left.draw(gumbel(self._seed, Stream.RESIDUAL, self._index, left.ids, self._node))

    def _at(self, token: int) -> int:
        assert self._law is not None
        assert self._q is not None
        at = int(np.searchsorted(self._law.ids, token))
        if at == len(self._law) or self._law.ids[at] != token or self._q[at] == 0:
            raise ValueError(f"token {token} was not drawn from the law it is tested with")
        return at
