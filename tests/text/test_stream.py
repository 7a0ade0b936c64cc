"""`TextStream` against a reference that looks at the whole text again after every token."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.text import Cut, TextStream

END, STOP_ID, SILENT = 90, 91, 92
STOP_TEXT = "<|im_end|>"

Piece = tuple[int, bytes]


@dataclass
class Shown:
    """What a caller of the stream sees."""

    cut: Cut | None = None
    texts: list[str] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def stream(stops: Sequence[str]) -> TextStream:
    return TextStream(stops=stops, stop_ids={STOP_ID: STOP_TEXT}, end_ids={END})


def run(tokens: Sequence[Piece], stops: Sequence[str], step: Callable[[], int] = lambda: 1) -> Shown:
    """Pushes tokens as the engine does: in runs, up to the first cut; releases after each run."""
    text, shown, rest = stream(stops), Shown(), list(tokens)
    while rest and shown.cut is None:
        n = step()
        for token, piece in rest[:n]:
            shown.cut = text.push(token, piece)
            if shown.cut is not None:
                break
        rest = rest[n:]
        out, kept = text.release()
        shown.texts.append(out)
        shown.kept.append(kept)
    out, kept = text.finish()
    shown.texts.append(out)
    shown.kept.append(kept)
    return shown


def decode_all(data: bytes) -> str:
    """All at once, without what Python holds for an unfinished character at the end (half a surrogate, which can only
    turn out broken, among it)."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def reference(
    tokens: Sequence[Piece], stops: Sequence[str], special: Mapping[int, str | None]
) -> tuple[str, int, Cut | None]:
    needles = {stop: stop.encode() for stop in stops}
    data, begins = b"", []
    for count, (token, piece) in enumerate(tokens):
        if token in special:
            return decode_all(data), count, Cut(count, special[token])
        begins.append(len(data))
        data += piece
        hits = sorted((data.find(n), -len(n), s) for s, n in needles.items() if n in data)
        if hits:
            start, _, stop = hits[0]
            keep = sum(begin < start for begin in begins)
            return decode_all(data[:start]), keep, Cut(keep, stop)
    return decode_all(data), len(tokens), None


@st.composite
def splits(draw: st.DrawFn) -> list[Piece]:
    """A text over few characters, cut into tokens anywhere, with silent, end and stop tokens in between."""
    data = "".join(draw(st.lists(st.sampled_from("aabbc 😀é"), max_size=25))).encode()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.sampled_from([b"\xff", b"\xf0\x9f", b"\xed\xa0\x80", b"\x80"])) + data[at:]
    tokens: list[Piece] = []
    while data:
        n = draw(st.integers(1, 6))
        tokens.append((len(tokens) % 80, data[:n]))
        data = data[n:]
    for token in draw(st.lists(st.sampled_from([SILENT, SILENT, STOP_ID, END]), max_size=2)):
        tokens.insert(draw(st.integers(0, len(tokens))), (token, b""))
    return tokens


STOPS = st.lists(st.text("abc 😀é", min_size=1, max_size=4), max_size=3)


@given(splits(), STOPS, st.data())
def test_text_tokens_and_cut_equal_the_slow_reference(
    tokens: list[Piece], stops: list[str], data: st.DataObject
) -> None:
    text, keep, cut = reference(tokens, stops, {END: None, STOP_ID: STOP_TEXT})
    one_by_one = run(tokens, stops)
    in_runs = run(tokens, stops, lambda: data.draw(st.integers(1, 9)))
    for shown in (one_by_one, in_runs):
        assert shown.text == text
        assert shown.cut == cut
        assert shown.kept[-1] == keep
        assert shown.kept == sorted(shown.kept)
    assert cut is None or keep == cut.keep


@given(splits(), STOPS)
def test_what_is_out_is_never_taken_back(tokens: list[Piece], stops: list[str]) -> None:
    """At each point, what is out is a beginning of every possible end."""
    endings: list[list[Piece]] = [[], [(END, b"")], *([(1, stop.encode())] for stop in stops)]
    text, out = stream(stops), ""
    for n, (token, piece) in enumerate(tokens, start=1):
        if text.push(token, piece) is not None:
            break
        more, kept = text.release()
        out += more
        for ending in endings:
            whole, keep, _ = reference([*tokens[:n], *ending], stops, {END: None, STOP_ID: STOP_TEXT})
            assert whole.startswith(out)
            assert kept <= keep


@given(splits(), STOPS)
def test_nothing_of_a_stop_goes_out(tokens: list[Piece], stops: list[str]) -> None:
    shown = run(tokens, stops)
    assert not any(stop in shown.text for stop in stops)


@given(st.text("abc😀", min_size=2, max_size=6), st.text("xy", max_size=4))
def test_an_almost_stop_comes_out_in_full_at_the_end(stop: str, before: str) -> None:
    almost = before + stop[:-1]
    shown = run([(0, bytes([byte])) for byte in almost.encode()], [stop])
    assert shown.text == almost
    assert shown.cut is None
    assert shown.kept[-1] == len(almost.encode())


def test_alphabet_with_a_stop_in_the_middle_of_a_run() -> None:
    tokens = [(i, letter.encode()) for i, letter in enumerate("ABCDEFGHIJKLMNOP")]
    shown = run(tokens, ["HIJKLM"], lambda: 5)
    assert shown.texts == ["ABCDE", "FG", "", ""]
    assert shown.kept == [5, 7, 7, 7]
    assert shown.cut == Cut(7, "HIJKLM")


def test_a_token_that_begins_before_the_match_stays() -> None:
    shown = run([(1, b"ab"), (2, b"cd"), (3, b"ef"), (4, b"gh")], ["bcdef"])
    assert shown.text == "a"
    assert shown.cut == Cut(1, "bcdef")


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_end_token_inside_an_accepted_run(n: int) -> None:
    tokens = [*((i, b"x") for i in range(12)), (END, b""), *((i, b"y") for i in range(8))]
    shown = run(tokens, [], lambda: n)
    assert shown.text == "x" * 12
    assert shown.cut == Cut(12, None)
    assert shown.kept[-1] == 12


def test_end_token_releases_an_almost_stop() -> None:
    shown = run([(1, b"a<|im"), (END, b"")], [STOP_TEXT])
    assert shown.text == "a<|im"
    assert shown.cut == Cut(1, None)


def test_a_stop_spelt_like_a_control_token_matches_its_id_and_its_letters() -> None:
    by_id = run([(1, b"hi"), (STOP_ID, b""), (2, b"no")], [STOP_TEXT])
    by_text = run([(1, b"hi"), (2, b"<|im_"), (3, b"end|>"), (4, b"no")], [STOP_TEXT])
    for shown in (by_id, by_text):
        assert shown.text == "hi"
        assert shown.cut == Cut(1, STOP_TEXT)


def test_a_token_that_is_both_stop_and_end_names_the_stop() -> None:
    text = TextStream(stops=["</s>"], stop_ids={2: "</s>"}, end_ids={2})
    assert text.push(2, b"") == Cut(0, "</s>")


def test_a_silent_token_right_before_the_match_is_dropped_one_before_an_end_token_stays() -> None:
    assert run([(1, b"a"), (SILENT, b""), (2, b"S")], ["S"]).cut == Cut(1, "S")
    assert run([(1, b"a"), (SILENT, b""), (END, b"")], ["S"]).cut == Cut(2, None)


def test_an_emoji_shows_up_whole_or_not_at_all() -> None:
    family = "👩‍👩‍👧‍👦"
    tokens = [(i, bytes([byte])) for i, byte in enumerate(family.encode())]
    for limit in range(len(tokens)):
        shown = run(tokens[:limit], [])
        assert family.startswith(shown.text)
        assert shown.kept[-1] == limit


def test_a_stop_that_is_an_emoji_cut_over_tokens() -> None:
    head, tail = "😀".encode()[:2], "😀".encode()[2:]
    shown = run([(1, b"hi "), (2, head), (3, tail + b" there")], ["😀"])
    assert shown.text == "hi "
    assert shown.cut == Cut(1, "😀")


def test_pushing_past_the_end_is_an_error() -> None:
    text = stream(["S"])
    assert text.push(1, b"S") == Cut(0, "S")
    with pytest.raises(RuntimeError, match="ended"):
        text.push(2, b"x")
    assert text.finish() == ("", 0)
    assert text.finish() == ("", 0)


def test_work_per_token_does_not_grow_with_the_answer() -> None:
    """The state left after many tokens is as small as after few."""
    text = stream(["abcabd"])
    for _ in range(20_000):
        assert text.push(1, b"abc") is None
        text.release()
    assert text.kept == 19_999
    assert len(text._finder.held) == 3
    assert len(text._open) == 1
