"""Settings race each other over prompts; every stage ends with the slower half leaving.

Successive halving (Karnin, Koren and Somekh 2013): time goes to those between whom the choice lies, and at any moment
there is an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from localspec.tools.pairs import WARM_UP_TOKENS, Pair, Runner, side_by_side
from localspec.tools.prompts import Prompt
from localspec.tools.stats import middle

#: So many settings race to the end.
FINALISTS = 2


@dataclass(slots=True)
class Race:
    """Pairs by setting. ``running``: those still in it, at the end the finalists; ``prompts`` that all of these have
    answered; ``stopped``: by ctrl-c."""

    pairs: dict[str, list[Pair]]
    running: list[str]
    prompts: int = 0
    stopped: bool = False
    tokens: int = 0

    def speedup(self, way: str) -> float:
        """Median of the ratios to plain decoding; 0 where no answer was long enough to tell."""
        return middle([pair.ratio for pair in self.pairs[way]]) or 0.0


def stages(runners: int) -> int:
    """How often the slower half leaves, and once more."""
    return 1 if runners <= FINALISTS else 1 + stages(halved(runners))


def halved(runners: int) -> int:
    """How many of so many go on."""
    return max((runners + 1) // 2, FINALISTS)


def by_turns(prompts: Sequence[Prompt]) -> Iterator[Prompt]:
    """One of each category, then the next of each, and so on without end."""
    shelves: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        shelves.setdefault(prompt.category, []).append(prompt)
    longest = max(map(len, shelves.values()))
    return cycle([shelf[i] for i in range(longest) for shelf in shelves.values() if i < len(shelf)])


def race(
    runner: Runner,
    ways: Sequence[str],
    prompts: Sequence[Prompt],
    tokens: int,
    seconds: float,
    *,
    keep: Collection[str] = (),
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[float], object] = lambda share: None,
) -> Race:
    """Runs it within about so many seconds; each stage has the same share of them. A prompt is begun if the last one
    would still have fitted in, and one is answered in any stage. Their order alternates from prompt to prompt, and with
    it whose plain answer comes first.

    Ctrl-c ends it early: what was answered by all counts.

    Args:
        keep: those that stay to the end whatever they bring, to be compared with.

    Raises:
        LocalspecError: an answer failed.
    """
    began = clock()
    found = Race({way: [] for way in ways}, list(ways), tokens=tokens)
    left, coming = stages(len(ways)), by_turns(prompts)

    def tell() -> None:
        progress(min((clock() - began) / max(seconds, 1e-9), 1.0))

    try:
        for way in (None, *ways):
            runner.run(way, prompts[0], min(WARM_UP_TOKENS, tokens))
        while True:
            end = clock() + (began + seconds - clock()) / left
            _stage(runner, found, coming, end, clock, tell)
            left -= 1
            if not left:
                return found
            ranked = sorted(found.running, key=found.speedup, reverse=True)
            found.running = [way for at, way in enumerate(ranked) if at < halved(len(ranked)) or way in keep]
    except KeyboardInterrupt:
        found.stopped = True
    return found


def _stage(
    runner: Runner,
    found: Race,
    coming: Iterator[Prompt],
    end: float,
    clock: Callable[[], float],
    progress: Callable[[], object],
) -> None:
    lasted = 0.0
    while not lasted or clock() + lasted <= end:
        began = clock()
        ways = found.running if found.prompts % 2 == 0 else found.running[::-1]
        pairs = side_by_side(runner, ways, next(coming), found.tokens)
        for way, pair in pairs.items():
            found.pairs[way].append(pair)
        found.prompts += 1
        lasted = max(clock() - began, 1e-9)
        progress()
