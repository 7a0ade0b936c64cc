"""Sequence ids as branches: how a token tree lives in llama.cpp's cache.

llama.cpp masks by sequence id: a row sees the cells that share its id at smaller positions. So every branch of a
tree gets an id of its own, a node carries the ids of all branches through it, and siblings never see each other.
(Two tokens at one position of one id would: that is never done.)

Copying an id over the whole prefix costs time linear in it. The ids of past branches therefore stay on the prefix
they have, and only the tail is touched: what is new since is copied, what is rejected is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Protocol

from localspec.errors import EngineError
from localspec.spec.tree import TokenTree


class Memory(Protocol):
    """The three operations on llama.cpp's cache; positions are half-open ranges, ``end = -1`` is no end."""

    def remove(self, seq_id: int, start: int, end: int) -> bool: ...

    def copy(self, source: int, target: int, start: int, end: int) -> None: ...

    def first_position(self, seq_id: int) -> int: ...


class IdPool:
    """Hands out sequence ids; a branch may take back an id that another sequence holds in reserve.

    Args:
        n: ids to hand out, 0 to n - 1.
        waste: an id that keeps rejected cells occupied which lie between accepted ones (see `Branches.commit`);
            ``None``: they are freed at once.
        gapless: nothing is kept behind a rejected cell instead.
    """

    def __init__(self, n: int, *, waste: int | None = None, gapless: bool = False) -> None:
        self.waste = waste
        self.gapless = gapless
        self._free = list(range(n - 1, -1, -1))
        self._holders: list[Branches] = []

    def take(self) -> int:
        if not self._free:
            for holder in self._holders:
                holder.release_reserve()
                if self._free:
                    break
        if not self._free:
            raise EngineError(
                "no sequence id is left for another branch",
                hint="Use fewer sequences, or a smaller --spec-tree-width.",
            )
        return self._free.pop()

    def give(self, seq_id: int) -> None:
        self._free.append(seq_id)

    def enlist(self, holder: Branches) -> None:
        self._holders.append(holder)

    def discharge(self, holder: Branches) -> None:
        self._holders.remove(holder)


class Branches:
    """One sequence in the cache: ``n_past`` committed tokens under the id ``main``, and while a tree is
    uncommitted, ids for its other branches."""

    def __init__(self, pool: IdPool, memory: Memory) -> None:
        self._pool = pool
        self._memory = memory
        self.main = pool.take()
        self.n_past = 0
        self._synced: dict[int, int] = {}  # reserve id → how much of the prefix it carries
        self._ids: list[list[int]] = []  # node of the uncommitted tree → ids it carries
        self._tips: dict[int, int] = {}  # id in use → the last node it carries
        self.order: Sequence[int] = ()  # nodes in the order their rows are to be written
        self._grown = False  # the tree came in several passes
        pool.enlist(self)

    def place(self, tree: TokenTree, done: int) -> Sequence[Sequence[int]]:
        """Gives the nodes from ``done`` on their ids; returns the ids of all nodes, by node.

        The likeliest branch runs on under the id its parent ends with (the main id, at the root), so that keeping it
        touches no other cell; every other one gets a new id that is laid over the cells it shares.
        """
        self._grown = done > 0
        if len(tree) == done + 1:  # plain decoding, and a chain that grows
            parent = tree.parents[done]
            seq_id = self._branch_id(parent, depth=tree.depths[done])
            self._ids = [*self._ids[:done], [seq_id]]
            self._tips[seq_id] = done
            self.order = (done,)
            return self._ids
        self.order = range(done, len(tree)) if tree.is_chain else likeliest_first(tree, done)
        self._ids = self._ids[:done] + [[] for _ in range(len(tree) - done)]
        leaves = (len(tree) - 1,) if tree.is_chain else sorted(tree.leaves, key=lambda node: -tree.reach[node])
        for leaf in leaves:
            if leaf < done:
                continue
            new, node = [], leaf
            while node >= done:
                new.append(node)
                node = tree.parents[node]
            # ``node`` is now the last node of this branch that the cache already has, or -1.
            seq_id = self._branch_id(node, depth=tree.depths[node] + 1 if node >= 0 else 0)
            self._tips[seq_id] = leaf
            for fresh in new:
                self._ids[fresh].append(seq_id)
        return self._ids

    def _branch_id(self, fork: int, depth: int) -> int:
        if fork < 0:
            if self.main not in self._tips:
                return self.main
            return self._reserve()
        for seq_id in self._ids[fork]:
            if self._tips[seq_id] == fork:
                return seq_id
        seq_id = self._reserve()
        self._memory.copy(self._ids[fork][0], seq_id, self.n_past, self.n_past + depth)
        return seq_id

    def _reserve(self) -> int:
        seq_id = next((i for i in self._synced if i not in self._tips), None)
        if seq_id is None:
            # Mark it as held before anything can reclaim reserves.
            seq_id = self._pool.take()
            self._synced[seq_id] = 0
        if self._synced[seq_id] < self.n_past:
            self._memory.copy(self.main, seq_id, self._synced[seq_id], self.n_past)
            self._synced[seq_id] = self.n_past
        return seq_id

    def commit(self, path: Sequence[int]) -> bool:
        """Keeps the cells of ``path``, drops all others of the tree. False: the cache could not be cut.

        Rejected cells that lie between accepted ones are not freed but handed to the waste id: a later token put
        there would come before its elders, attention would add up in another order than in plain decoding, and on a
        quantised model that rounding shows. In a gapless cache what lies behind a rejected cell is dropped as well, for
        the caller to read again.
        """
        if self._pool.gapless:
            path = [node for node, _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, self.order, strict=False))]
        if not path:
            return self.drop()
        if self._pool.waste is not None and not self._grown and len(path) < len(self._ids):
            self._set_aside(path, self._pool.waste)
        new = self.n_past + len(path)
        end = path[-1]
        cut = True
        if self.main in self._ids[end]:
            if self._tips[self.main] != end:
                cut = self._memory.remove(self.main, new, -1)
        else:
            if self.main in self._tips:
                cut = self._memory.remove(self.main, self.n_past, -1)
            self._memory.copy(self._ids[end][0], self.main, self.n_past, new)
        cut = self._clear_reserve() and cut
        self.n_past = new
        return cut

    def _set_aside(self, path: Sequence[int], waste: int) -> None:
        rank = {node: row for row, node in enumerate(self.order)}
        kept, last = set(path), rank[path[-1]]
        for seq_id in self._tips:
            nodes = [node for node, ids in enumerate(self._ids) if seq_id in ids]
            lost = [rank[node] for node in nodes if node not in kept]
            if lost and min(lost) < last:
                self._memory.copy(seq_id, waste, self.n_past + len(nodes) - len(lost), -1)

    def drop(self) -> bool:
        """Takes the whole uncommitted tree out of the cache."""
        cut = True
        if self.main in self._tips:
            cut = self._memory.remove(self.main, self.n_past, -1)
        return self._clear_reserve() and cut

    def _clear_reserve(self) -> bool:
        cut = True
        for seq_id in self._tips:
            if seq_id != self.main:
                cut = self._memory.remove(seq_id, self.n_past, -1) and cut
        self._tips.clear()
        self._ids = []
        return cut

    def truncate(self, n: int) -> bool:
        """Keeps the first ``n`` committed tokens. False: the cache could not be cut there."""
        cut = self._memory.remove(self.main, n, -1)
        for seq_id, synced in self._synced.items():
            if synced > n:
                cut = self._memory.remove(seq_id, n, -1) and cut
                self._synced[seq_id] = n
        if cut:
            self.n_past = n
        return cut

    def share(self, n: int, other: Branches) -> None:
        """Lays the first ``n`` tokens of this sequence under ``other``, which is empty."""
        self._memory.copy(self.main, other.main, 0, n)
        other.n_past = n

    def release_reserve(self) -> None:
        """Gives back the ids that no branch uses now."""
        for seq_id in [i for i in self._synced if i not in self._tips]:
            self._memory.remove(seq_id, -1, -1)
            del self._synced[seq_id]
            self._pool.give(seq_id)

    def close(self) -> None:
        self.drop()
        self.release_reserve()
        self._memory.remove(self.main, -1, -1)
        self._pool.discharge(self)
        self._pool.give(self.main)


def likeliest_first(tree: TokenTree, done: int) -> list[int]:
    """Nodes from ``done`` on, branch by branch, the likeliest branch first: the path that is probably kept then
    lies in one piece in the cache, as plain decoding would have laid it."""
    order: list[int] = []
    seen = [node < done for node in range(len(tree))]
    for leaf in sorted(tree.leaves, key=lambda node: -tree.reach[node]):
        branch = []
        node = leaf
        while node >= 0 and not seen[node]:
            seen[node] = True
            branch.append(node)
            node = tree.parents[node]
        order.extend(reversed(branch))
    return order
