from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.content import Content
from textual.pilot import Pilot

from localspec.talk.trace import AnswerTrace
from localspec.tui.provenance import JOINED, NOTHING, UNTRACED, Provenance, TokenText, detail, legend
from localspec.tui.token_lines import PART, TokenLines
from localspec.types import Alternative, Finished, SpecStats, StepStats, Timings, TokenInfo, Tokens, TreeTrace
from tests.tui.hosts import run, screen_lines
from tests.tui.traces import example

MARKS = {"a": "ᵃ", "b": "ᵇ"}
pieces = st.sampled_from([b" the", b"cat", b"\n", b".\n\n", b" ", b"\xe7\x8c", b"\xab", "猫".encode(), b"", b"x" * 90])
tokens = st.lists(
    st.builds(TokenInfo, id=st.just(1), piece=pieces, source=st.sampled_from(["", "a", "b"]), depth=st.integers(1, 12)),
    max_size=60,
)


def laid(infos: list[TokenInfo], width: int = 20, *, depths: bool = False) -> TokenLines:
    lines = TokenLines(width, depths=depths)
    lines.add(infos, MARKS)
    return lines


def texts(lines: TokenLines) -> list[str]:
    rows = ([lines.tokens[place] for place in lines.line(at)] for at in range(len(lines)))
    return ["".join(one.blank + one.mark + one.text for one in row) for row in rows]


def guess(piece: bytes, depth: int, source: str = "a") -> TokenInfo:
    return TokenInfo(1, piece, source, depth, 0.5)


OWN = TokenInfo(1, b" own")


def test_a_mark_stands_where_a_drafters_guesses_begin() -> None:
    infos = [guess(b" one", 1), guess(b" two", 2), OWN, guess(b" one", 1), guess(b" new", 1), guess(b" b", 2, "b")]
    assert texts(laid(infos, 60)) == [" ᵃone two own ᵃone ᵃnew ᵇb"]
    assert texts(laid(infos, 60, depths=True)) == [" ᵃ¹one ²two own ᵃ¹one ᵃ¹new ᵇ²b"]


def test_lines_end_at_line_breaks_and_before_what_does_not_fit() -> None:
    infos = [TokenInfo(1, piece) for piece in (b"one", b".\n\n", b"three", b" four", b" five", b" six", b"\n")]
    assert texts(laid(infos, 11)) == ["one.↵↵", "three four", " five six↵"]


def test_a_character_of_several_tokens_stands_with_the_last() -> None:
    whole = "😀".encode()
    assert texts(laid([guess(b"  ", 1)])) == ["ᵃ  "]
    infos = [TokenInfo(1, piece) for piece in (b"a", whole[:1], whole[1:3], whole[3:], b"b")]
    assert texts(laid(infos)) == [f"a{PART}{PART}😀b"]


@settings(max_examples=150, deadline=None)
@given(infos=tokens, width=st.integers(4, 40), cut=st.integers(0, 60), depths=st.booleans())
def test_every_token_stands_in_one_line_and_growing_changes_nothing(
    infos: list[TokenInfo], width: int, cut: int, depths: bool
) -> None:
    lines, grown = laid(infos, width, depths=depths), laid(infos[:cut], width, depths=depths)
    grown.add(infos[cut:], MARKS)
    assert texts(lines) == texts(grown)
    assert [place for at in range(len(lines)) for place in lines.line(at)] == list(range(len(infos)))
    for at, text in enumerate(texts(lines)):
        assert cell_len(text) <= width
        assert text.isprintable()
        for place in lines.line(at):
            assert lines.line_of(place) == at
            assert lines.tokens[place].cells > 0
            assert lines.token_at(at, lines.column_of(place)) == place
    assert lines.token_at(len(lines), 0) is None
    if infos:
        assert lines.token_at(len(lines) - 1, 999) == len(infos) - 1


def test_the_legend_counts_tokens_by_drafter() -> None:
    trace = AnswerTrace()
    trace.hear(Tokens(1, "", (guess(b"x", 1, "draft-simple"), OWN, guess(b"y", 1, "suffix"), OWN), None))
    assert legend(trace, 80).plain == "ᵃ draft-simple 1 · ᵇ suffix 1 · the target's own 2"
    assert all(len(line) <= 30 for line in legend(trace, 30).plain.splitlines())
    assert legend(AnswerTrace(), 80).plain == "the target's own 0"


def test_the_detail_says_all_that_is_known() -> None:
    top = (Alternative(1, b" cat", math.log(0.92)), Alternative(2, b"\x1b", float("-inf")))
    token = TokenInfo(1, b" cat", "draft-simple", 2, 0.81, 0.92, math.log(0.92), top)
    assert detail(untold(*[OWN] * 6, token, *[OWN] * 83), 6, 80).plain.splitlines() == [
        "␣cat · 7 of 90 · guessed by draft-simple at depth 2 · draft p 0.810",
        "target p 0.920",
        "likeliest: ␣cat 0.920 · \\x1b 0.000",
    ]
    assert detail(untold(OWN), 0, 80).plain == "␣own · 1 of 1 · not guessed"
    assert detail(untold(), 0, 80).plain == "no token yet"
    none = TokenInfo(1, b"", target_p=0.5)
    assert detail(untold(none), 0, 80).plain == "∅ · 1 of 1 · not guessed · target p 0.500"


#: " one" held; of its followers neither did, and nothing followed them in the text.
TREE = TreeTrace(
    (5, 6, 7, 8, 9),
    (-1, 0, 1, 1, 3),
    (1.0, 0.9, 0.2, 0.5, 0.4),
    ("", "a", "a", "b", "b"),
    (1,),
    (b"", b" one", b"\x1b[2J", b" is", b" far"),
    (None, 0.8, None, 0.02, 0.1),
)


def made(tree: TreeTrace | None, *, drafted: int = 4, steps: int = 1) -> AnswerTrace:
    """One guess that held and the target's own token, so many times."""
    trace = AnswerTrace()
    for _ in range(steps):
        accepted = 1 if drafted else 0
        infos = (guess(b" one", 1), OWN)[1 - accepted :]
        trace.hear(Tokens(1, "", infos, StepStats(drafted, accepted, accepted, len(infos), 0, 0.0, 0.0, 0.0, tree)))
    return trace


def test_what_was_refused_is_told_where_it_was_guessed() -> None:
    trace = made(TREE, steps=2)
    for place in (1, 3):
        assert detail(trace, place, 80).plain.splitlines() == [
            f"␣own · {place + 1} of 4 · the target's own",
            "guessed here and not drawn:",
            "  ᵇ␣is (draft 0.50, target 0.02) · ᵃ\\x1b[2J (draft 0.20)",
        ]
        assert "guessed by a at depth 1" in detail(trace, place - 1, 80).plain
        assert "not drawn" not in detail(trace, place - 1, 80).plain
    assert legend(trace, 80).plain == "ᵃ a 2 · ᵇ b 0 · the target's own 2 · ✗ guesses refused 2"


def test_what_nobody_guessed_and_what_nobody_knows_are_not_the_same() -> None:
    assert detail(made(None, drafted=0), 0, 80).plain == "␣own · 1 of 1 · not guessed"
    assert detail(made(None), 1, 80).plain.splitlines() == ["␣own · 2 of 2 · the target's own", UNTRACED]
    trace = made(TREE)
    joint = StepStats(8, 4, 2, 4, 0, 0.0, 0.0, 0.0, TREE)
    trace.hear(Tokens(1, "", (guess(b" one", 1), OWN) * 2, joint))
    assert detail(trace, 3, 80).plain.splitlines()[1:] == [JOINED]
    assert "␣is" in detail(trace, 5, 80).plain  # the tree is the last step's


def test_a_place_where_a_guess_was_refused_has_a_sign() -> None:
    view = Provenance()

    async def scenario(pilot: Pilot[None]) -> str:
        view.show(finish(made(TREE, steps=2)))
        await pilot.pause()
        return "\n".join(screen_lines(pilot))

    assert " ᵃone ✗own ᵃone ✗own" in run(view, scenario, size=(60, 20))


def untold(*infos: TokenInfo) -> AnswerTrace:
    """An answer whose steps nobody told of."""
    trace = AnswerTrace()
    trace.hear(Tokens(1, "", infos, None))
    return trace


def finish(trace: AnswerTrace) -> AnswerTrace:
    ids = tuple(token.id for token in trace.tokens)
    trace.hear(Finished(1, "stop", ids, None, Timings(1, 0, 0.0, 0.0, len(ids), 1.0), SpecStats()))
    return trace


def text_of(view: Provenance) -> TokenText:
    return view.query_one(TokenText)


@pytest.mark.parametrize("size", [(50, 30), (36, 30)])
@pytest.mark.parametrize("colour", [True, False])
def test_the_cursor_goes_from_token_to_token(
    size: tuple[int, int], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    view, trace = Provenance(), finish(example(200))

    def described(pilot: Pilot[None], place: int) -> None:
        token, shown = trace.tokens[place], " ".join(screen_lines(pilot))
        assert text_of(view).token is token
        assert f"{place + 1} of {len(trace.tokens)}" in shown
        said = "the target's own" if trace.refused(place) else "not guessed"
        assert (f"guessed by {token.source}" if token.source else said) in " ".join(shown.split())
        assert "likeliest:" in shown
        assert "\\x1b[31m 0.250" in shown

    async def scenario(pilot: Pilot[None]) -> None:
        view.show(trace)
        text_of(view).focus()
        await pilot.pause()
        described(pilot, 0)
        for key, place in (("right", 1), ("right", 2), ("left", 1), ("home", 0), ("left", 0), ("end", None)):
            await pilot.press(key)
            await pilot.pause()
            described(pilot, len(trace.tokens) - 1 if place is None else place)
        before = text_of(view).cursor
        await pilot.press("up")
        await pilot.pause()
        assert 0 < text_of(view).cursor < before
        described(pilot, text_of(view).cursor)
        await pilot.press("pageup", "pageup", "pageup", "pageup", "pageup", "pageup")
        assert text_of(view).cursor < size[0]

    run(view, scenario, size=size)


def test_guesses_are_underlined_and_others_are_not() -> None:
    view, trace = Provenance(), AnswerTrace()
    trace.hear(Tokens(1, "", (OWN, guess(b" guessed", 1, "suffix"), guess(b" deep", 4, "suffix"), OWN), None))

    async def scenario(pilot: Pilot[None]) -> None:
        view.show(finish(trace))
        await pilot.press("end")
        await pilot.pause()
        segments = {segment.text: segment.style for segment in text_of(view).render_line(0) if segment.style}
        assert segments["guessed"].underline
        assert segments["deep"].underline
        assert not any(style.underline for text, style in segments.items() if "own" in text)
        assert segments["guessed"].color != segments["deep"].color
        assert any(style.reverse for text, style in segments.items() if text == "own")
        assert " ᵃguessed" in screen_lines(pilot)[1]
        text_of(view).focus()
        await pilot.press("d")
        await pilot.pause()
        assert " ᵃ¹guessed ⁴deep" in screen_lines(pilot)[1]

    run(view, scenario)


@pytest.mark.parametrize("theme", ["textual-light", "ansi-dark", "ansi-light"])
def test_guesses_are_underlined_in_every_theme(theme: str) -> None:
    view, trace = Provenance(), AnswerTrace()
    names = ["one", "two", "three", "four", "five", "six", "seven"]
    trace.hear(Tokens(1, "", (OWN, *(guess(name.encode(), 9, name) for name in names)), None))

    async def scenario(pilot: Pilot[None]) -> None:
        pilot.app.theme = theme
        view.show(finish(trace))
        await pilot.pause()
        underlined = {one.text for one in text_of(view).render_line(0) if one.style and one.style.underline}
        assert underlined == set(names)

    run(view, scenario, size=(60, 20))


def test_a_click_puts_the_cursor_there() -> None:
    view, trace = Provenance(), finish(example(200))

    async def scenario(pilot: Pilot[None]) -> None:
        view.show(trace)
        await pilot.pause()
        text = text_of(view)
        await pilot.click(text, offset=(3, 2))
        await pilot.pause()
        assert text.cursor == text._laid.token_at(2, 3) != 0

    run(view, scenario)


def test_it_follows_the_end_until_somebody_moves_the_cursor() -> None:
    view, trace, longer = Provenance(), AnswerTrace(), example(3000)

    def grow(count: int) -> None:
        trace.hear(Tokens(1, "", tuple(longer.tokens[len(trace.tokens) :][:count]), None))
        view.show(trace)

    async def scenario(pilot: Pilot[None]) -> None:
        text = text_of(view)
        text.focus()
        for _ in range(4):
            grow(100)
            await pilot.pause()
            assert text.cursor == len(trace.tokens) - 1
            assert text.scroll_offset.y == text.max_scroll_y > 0
        await pilot.press("up")
        stayed = text.cursor
        grow(100)
        await pilot.pause()
        assert text.cursor == stayed
        await pilot.press("end")
        grow(100)
        await pilot.pause()
        assert text.cursor == len(trace.tokens) - 1

    run(view, scenario, size=(50, 12))


def test_a_long_answer_is_rendered_by_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    view, trace = Provenance(), finish(example(3000))
    rows: list[int] = []

    async def scenario(pilot: Pilot[None]) -> None:
        text = text_of(view)
        row = text.row

        def looked_at(at: int) -> Content:
            rows.append(at)
            return row(at)

        monkeypatch.setattr(text, "row", looked_at)
        view.show(trace)
        await pilot.pause()
        assert text.virtual_size.height > 300
        assert set(rows) <= set(range(text.size.height))
        await pilot.resize_terminal(36, 20)
        await pilot.pause()
        text.focus()
        await pilot.press("end")
        await pilot.pause()
        assert f"{len(trace.tokens)} of {len(trace.tokens)}" in " ".join(screen_lines(pilot))
        assert max(rows) == text.virtual_size.height - 1

    run(view, scenario)


def test_an_empty_answer_is_shown() -> None:
    view = Provenance()

    async def scenario(pilot: Pilot[None]) -> list[str]:
        view.show(AnswerTrace())
        text_of(view).focus()
        await pilot.press("left", "right", "up", "down", "home", "end", "pageup", "pagedown", "d")
        await pilot.click(TokenText, offset=(2, 2))
        return screen_lines(pilot)

    shown = run(view, scenario)
    assert shown[0] == "the target's own 0"
    assert NOTHING in " ".join(" ".join(shown).split())


def test_keys_that_come_before_the_panel_has_room_move_the_cursor() -> None:
    text = TokenText()
    text.show(finish(example(20)))
    for _ in range(3):
        text.action_move(1)
    assert text.cursor == 3
