"""The whole draft loop of a head in one run: from its first pass over the unread text to the last level of the tree,
with nothing that the host has to know between, so that on a card one CUDA graph holds it.

Each level is a pass of a fixed number of rows. Of the guesses behind them those are read on that are the likeliest to
be reached (EAGLE-2, arXiv 2406.16858): a choice by the sum of log-probabilities. Their states, what they see, their
places and cells are looked up where they are, and all guesses come to the host in one copy at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import CARRIED, Extent, Level, Work
from localspec.backends.torch.attention import Past
from localspec.backends.torch.cells import Pass
from localspec.backends.torch.graphs import BUCKETS, Graphs
from localspec.backends.torch.inputs import Feed
from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.tree_attention import MAX_NODES, Forest
from localspec.backends.torch.llama import Read
from localspec.backends.torch.place import arrays


@dataclass(frozen=True, slots=True)
class Guessing:
    """What a head guesses by, all of it where it computes.

    Args:
        read: a pass over embedded tokens and states.
        embedding: ``[n_vocab, width]``.
        unembedding: ``[scored, width]``.
        ids: ``[scored]``, the tokens that it scores; ``None``: all.
        ops: of which the loop itself uses ``top_k``.
    """

    read: Callable[[Tensor, Tensor, Past], Read]
    embedding: Tensor
    unembedding: Tensor
    ids: Tensor | None
    ops: Ops


@dataclass(frozen=True, slots=True)
class Plan:
    """Trees of ``depth`` levels, ``width`` wide, so many that each text's own fits in; ``widths`` and ``p_min`` are
    those of each."""

    depth: int
    width: int
    widths: tuple[int, ...]
    p_min: tuple[float, ...]

    @property
    def behind(self) -> int:
        """Nodes that are read behind a text."""
        return self.width * (self.depth - 1)

    def fits(self, nodes: Sequence[int]) -> bool:
        """Whether texts of so many unread tokens fit into one filled pass, and their trees into a mask."""
        return sum(nodes) <= max(BUCKETS) and max(nodes) + self.behind <= MAX_NODES


class Loop:
    """
    Args:
        by: the head.
        graphs: of its passes.
        texts: of a run at most.
    """

    def __init__(self, by: Guessing, graphs: Graphs, texts: int) -> None:
        self._by, self._graphs = by, graphs
        device, width = by.embedding.device, by.embedding.shape[1]
        # Of each text its width, and the logarithm of the least probability.
        self._bounds_here = torch.zeros((2, texts), pin_memory=device.type == "cuda")
        self._bounds = torch.zeros((2, texts), device=device)
        self._states = torch.zeros((max(BUCKETS), width), device=device, dtype=by.embedding.dtype)

    def plan(self, extents: Sequence[Extent]) -> Plan | None:
        """``None``: not so many tokens are scored, or more than a kernel finds."""
        widths = tuple(extent.width for extent in extents)
        if max(widths) > min(MAX_NODES, len(self._by.unembedding)):
            return None
        depth = max(extent.depth for extent in extents)
        return Plan(depth, max(widths), widths, tuple(extent.p_min for extent in extents))

    def grow(self, work: Sequence[Work], states: Tensor, past: Pass, plan: Plan) -> list[list[Level]]:
        """The trees behind the chains of ``work``, which ``past`` is a pass over, with ``states`` ``[rows, width]``
        beside them; each text has ``plan.behind`` spare cells."""
        past.check()
        self._states[: len(states)] = states
        self._put_bounds(plan)
        tokens = [token for item in work for token in item.tree.tokens]
        run = self._graphs.run(tokens, past, (plan.depth, plan.width), partial(self._run, plan.depth, plan.width))
        (found,) = arrays((run(),))
        return [_levels(mine, plan) for mine in found[: len(work)]]

    def _put_bounds(self, plan: Plan) -> None:
        texts, here = len(plan.widths), self._bounds_here.numpy()
        here[0, :texts] = plan.widths
        with np.errstate(divide="ignore"):
            here[1, :texts] = np.log(plan.p_min)
        self._bounds.copy_(self._bounds_here, non_blocking=True)

    def _run(self, depth: int, width: int, feed: Feed) -> Tensor:
        """All of it: ``[texts, numbers]`` int32, as `_levels` reads them. Nothing here may ask for a number."""
        with torch.inference_mode():
            parts, level = list[Tensor](), self._first(feed)
            for number in range(depth):
                scores, tokens = self._guessed(level, width)
                parts += [tokens, scores.view(torch.int32)]
                if number < depth - 1:
                    sums = self._sums(level, scores)
                    onward = self._by.ops.top_k(sums.flatten(1), width)[1]
                    parts.append(onward)
                    level = self._next(feed, level, tokens, sums, onward.long(), number)
            return torch.cat([part.flatten(1) for part in parts], dim=1)

    def _first(self, feed: Feed) -> _Nodes:
        """The unread text; the roots of the trees are its last tokens."""
        forest, embedding = feed.forest, self._by.embedding
        read = self._by.read(F.embedding(feed.tokens, embedding), self._states[None, : feed.tokens.shape[1]], feed)
        # A text that only fills has no row: it reads another's, and is not looked at.
        at = (forest.starts[1:] - 1).clamp(min=0).long()[:, None]
        reach = torch.zeros_like(at, dtype=torch.float32)
        return _Nodes(read.layers[CARRIED][0][at], read.hidden[0][at], forest.masks[at], reach)

    def _guessed(self, level: _Nodes, width: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and tokens of the likeliest behind each node, ``[texts, nodes, width]``."""
        texts, nodes, _ = level.last.shape
        scores, tokens = self._by.ops.top_k(F.linear(level.last.flatten(0, 1), self._by.unembedding), width)
        if self._by.ids is not None:
            tokens = self._by.ids[tokens.long()].int()
        return scores.view(texts, nodes, width), tokens.view(texts, nodes, width)

    def _sums(self, level: _Nodes, scores: Tensor) -> Tensor:
        """Of each guess the logarithm of the chance that it is reached; -inf: less likely than its text wants. That
        there may be more behind a node than its text wants does not matter: those that it wants come before them."""
        least = self._bounds[1, : len(scores), None, None]
        return torch.where(scores >= least, level.reach[:, :, None] + scores, -torch.inf)

    def _next(self, feed: Feed, level: _Nodes, tokens: Tensor, sums: Tensor, onward: Tensor, number: int) -> _Nodes:
        """Reads the guesses ``onward`` ``[texts, width]`` behind a level."""
        (texts, width), parents = onward.shape, onward // tokens.shape[2]
        behind = _behind(feed, tokens.flatten(1).gather(1, onward), level.sees.gather(1, parents), number)
        states = level.carried.gather(1, parents[:, :, None].expand(-1, -1, level.carried.shape[2]))
        read = self._by.read(F.embedding(behind.tokens, self._by.embedding), states.flatten(0, 1)[None], behind)
        # The likeliest come first: what a narrower text does not want is last.
        wanted = torch.arange(width, device=onward.device) < self._bounds[0, :texts, None]
        reach = torch.where(wanted, sums.flatten(1).gather(1, onward), -torch.inf)
        return _Nodes(
            read.layers[CARRIED].view(texts, width, -1),
            read.hidden.view(texts, width, -1),
            behind.forest.masks.view(texts, width),
            reach,
        )


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Nodes of one level that were read: what is ``carried`` on from them and ``last``, which is scored, ``[texts,
    nodes, width]``; the mask of what each ``sees``, and the logarithm of its ``reach``, ``[texts, nodes]``."""

    carried: Tensor
    last: Tensor
    sees: Tensor
    reach: Tensor


def _behind(feed: Feed, tokens: Tensor, sees: Tensor, number: int) -> Feed:
    """What stands behind the next pass, over the guesses ``tokens`` of level ``number``, whose parents see ``sees``."""
    forest, width = feed.forest, tokens.shape[1]
    unread = forest.starts[1:] - forest.starts[:-1]
    there = unread > 0
    done = unread + number * width
    nodes = done[:, None] + torch.arange(width, dtype=torch.int32, device=sees.device)
    at = (forest.lengths[:, None] + nodes).long()
    slots = torch.where(there[:, None], forest.table.gather(1, at), -1)
    # Texts that only fill come last: they have no rows.
    starts = F.pad(there.cumsum(0), (1, 0)).int() * width
    positions = (forest.lengths + unread + number)[:, None].expand(-1, width)
    masks = sees | torch.ones_like(sees).bitwise_left_shift(nodes.long())
    trees = Forest(starts, forest.lengths, done, positions.flatten(), masks.flatten(), forest.table)
    return Feed(tokens.flatten()[None], slots.flatten(), trees, trees, feed.cells, feed.ops)


def _levels(found: NDArray[np.int32], plan: Plan) -> list[Level]:
    """One text's, of what a run gave."""
    levels, nodes, rest = list[Level](), 1, found
    for number in range(plan.depth):
        n, more = nodes * plan.width, plan.width * (number < plan.depth - 1)
        tokens, scores, onward, rest = np.split(rest, [n, 2 * n, 2 * n + more])
        shape = nodes, plan.width
        levels.append(Level(tokens.reshape(shape), np.exp(scores.view(np.float32)).reshape(shape), onward))
        nodes = plan.width
    return levels
