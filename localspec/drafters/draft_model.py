"""``draft-simple``: a small model guesses ahead, of the same vocabulary here, of another in `translated`.

The tree is grown in the draft model's own cache, one pass a level: each pass decodes the nodes kept at the level
above, and their rows say which children are worth keeping. As in EAGLE-2 (arXiv 2406.16858) the candidates of a
level compete by the probability that the walk reaches them; ``width`` of them are grown further and the likeliest
``nodes`` of all are proposed.

Above temperature 0 the guesses look at the noise the target will draw with: argmax(log q + noise) is the token the
target draws if it shares the draft's opinion, so acceptance rises and the text stays the target's own.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from localspec.backends.base import Rows, Target, Work
from localspec.drafters.base import Ask, Draft, Features
from localspec.drafters.files import DRAFT_MODEL
from localspec.drafters.growth import Growth, worth_a_pass
from localspec.drafters.translation import Translation
from localspec.errors import OutOfMemory
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing


class DraftModel:
    """A `Target` that guesses for another. It reads the text lazily: after a pause, or in a first step, it catches
    up with what it has missed."""

    name = DRAFT_MODEL
    needs: tuple[int, ...] = ()
    costs_passes = True
    #: Whether what a conversation has read is all that its cache holds, so that another can go on from it.
    _lends = True

    def __init__(self, model: Target, pairing: Pairing | Translation) -> None:
        self._model = model
        self._pairing = pairing
        self._lanes: dict[int, int] = {}  # the engine's sequence → the draft model's
        self._growing: dict[int, Growth] = {}  # trees in the draft cache, not yet committed
        self._texts: dict[int, Sequence[int]] = {}  # of which a lane's cache holds the beginning

    def open(self, seq: int) -> None:
        self._lanes[seq] = self._model.open()

    def fork(self, seq: int, new: int, n: int) -> None:
        lane = self._lanes[seq]
        self._lanes[new] = self._model.fork(lane, min(n, self._model.n_past(lane)))

    def close(self, seq: int) -> None:
        self._growing.pop(seq, None)
        self._texts.pop(seq, None)
        self._model.close(self._lanes.pop(seq))

    def prefill(self, seq: int, start: int, tokens: Sequence[int], features: Features) -> None:
        # Read at the first guess: a prompt that is never drafted for costs nothing.
        pass

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        try:
            return self._propose(asks)
        except OutOfMemory:
            self._forget_all_but({ask.seq for ask in asks})
            return self._propose(asks)

    def _forget_all_but(self, asked: Set[int]) -> None:
        """Makes room: conversations that nobody asks about are read again when somebody does."""
        for seq in self._lanes.keys() - asked:
            self.truncate(seq, 0)

    def _propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts: dict[int, Draft] = {}
        growths = []
        branches = self._branches(len(asks))
        for ask in asks:
            self._settle(ask.seq)
            text = self._text(ask)
            if not text:
                drafts[ask.seq] = Draft.nothing(ask)
                continue
            depth = self._depth(ask, len(text))
            if depth < 1:
                drafts[ask.seq] = Draft.nothing(
                    ask, out=f"the draft model's context of {self._model.caps.n_ctx} tokens is full"
                )
                continue
            self._borrow(ask, text)
            self._catch_up(ask, text)
            read = self._model.n_past(self._lanes[ask.seq])
            unread = self._pairing.readable(text[read:])
            growths.append(self._growth(ask, unread, depth, branches))
        try:
            self._grow(growths)
        except BaseException:
            for growth in growths:
                self._settle(growth.ask.seq)
            raise
        for growth in growths:
            drafts[growth.ask.seq] = growth.draft()
        return [drafts[ask.seq] for ask in asks]

    def _text(self, ask: Ask) -> Sequence[int]:
        """The text in the draft model's tokens, of which its cache holds the beginning; none: it cannot guess now."""
        return ask.tokens

    def _branches(self, sharers: int) -> int:
        """Branches that each of ``sharers`` trees may have, and so nodes of one of its levels."""
        caps = self._model.caps
        if not caps.trees:
            return 1
        spare = max(caps.max_leaves - caps.max_sequences, 0)  # every open sequence holds one
        return max(min(caps.max_rows // sharers, 1 + spare // sharers), 1)

    def _depth(self, ask: Ask, length: int) -> int:
        # Guesses of the last level are not decoded: a tree of depth d takes width · (d - 1) cells past the text.
        room = self._model.caps.n_ctx - length
        return min(ask.price.limits.depth, 1 + room // ask.price.limits.width)

    def _borrow(self, ask: Ask, text: Sequence[int]) -> None:
        """Text that another conversation has read since this one was forked from it is not read again."""
        seq = ask.seq
        self._texts[seq] = text
        lane = self._lanes[seq]
        behind = len(text) - self._model.n_past(lane) > self._share()
        if not (behind and self._lends and self._model.caps.trees):
            return
        shared = {other: self._has_read(other, theirs, text) for other, theirs in self._texts.items() if other != seq}
        best = max(shared, key=lambda other: shared[other], default=seq)
        if best != seq and shared[best] > self._model.n_past(lane):
            self._model.close(lane)
            self._lanes[seq] = self._model.fork(self._lanes[best], shared[best])

    def _has_read(self, other: int, theirs: Sequence[int], text: Sequence[int]) -> int:
        """How much of ``text`` lies in the cache of another conversation, all but its last token at most."""
        most = min(self._model.n_past(self._lanes[other]), len(text) - 1)
        if list(theirs[:most]) == list(text[:most]):
            return most
        return next(i for i in range(most) if theirs[i] != text[i])

    def _catch_up(self, ask: Ask, text: Sequence[int]) -> None:
        """Reads all of ``text`` but what fits into the first pass of the tree."""
        lane, rows, share = self._lanes[ask.seq], self._model.caps.max_rows, self._share()
        while len(text) - (read := self._model.n_past(lane)) > share:
            self._read_text(ask, self._pairing.readable(text[read : read + min(rows, len(text) - read - 1)]))

    def _share(self) -> int:
        """Tokens of each text that fit into the first pass of the trees."""
        return max(self._model.caps.max_rows // max(len(self._lanes), 1), 1)

    def _read_text(self, ask: Ask, chunk: Sequence[int]) -> None:
        """Takes a piece of the text into the cache."""
        lane = self._lanes[ask.seq]
        self._model.forward([Work.prompt(lane, chunk)])
        self._model.commit(lane, range(len(chunk)))
        self._noted(ask.seq, chunk, len(ask.tokens) - 1)

    def _growth(self, ask: Ask, unread: Sequence[int], depth: int, branches: int) -> Growth:
        return Growth(ask, unread, depth, self._pairing, self.name, branches)

    def _grow(self, growths: Sequence[Growth]) -> None:
        active = list(growths)
        while active:
            work = [growth.work(self._lanes[growth.ask.seq]) for growth in active]
            for growth in active:
                self._growing.pop(growth.ask.seq, None)  # a pass that fails leaves nothing of its trees
            results = self._model.forward(work)
            self._growing.update((growth.ask.seq, growth) for growth in active)
            for growth, rows in zip(active, results, strict=True):
                growth.take(rows)
            active = worth_a_pass(active)

    def observe(self, seq: int, start: int, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        growth = self._growing.pop(seq, None)
        if growth is not None:
            kept = growth.decoded_path([tree.tokens[node] for node in path])
            self._model.commit(self._lanes[seq], kept)
            self._noted(seq, growth.spelt(kept), start + 1 + growth.guesses_in(kept))

    def _noted(self, seq: int, read: Sequence[int], n: int) -> None:
        """The cache has grown by the tokens ``read``, which spell nothing beyond the target's first ``n`` tokens."""

    def _settle(self, seq: int) -> None:
        """Drops a tree that was never verified."""
        if self._growing.pop(seq, None) is not None:
            self._model.commit(self._lanes[seq], ())

    def truncate(self, seq: int, n: int) -> None:
        self._settle(seq)
        self._model.truncate(self._lanes[seq], n)

    def lag(self, seq: int, n_past: int) -> int:
        return max(n_past - self._model.n_past(self._lanes[seq]), 0)

    def gap(self, seq: int, n_past: int) -> int:
        return 0

    def interrupt(self, on: bool) -> None:
        self._model.interrupt(on)

    def set_threads(self, n: int) -> None:
        self._model.set_threads(n)

    def close_all(self) -> None:
        self._model.close_all()
