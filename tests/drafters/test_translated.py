"""A draft model of another vocabulary: what it reads, what it guesses, and that the text is the target's own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Work
from localspec.backends.fake import FakeRows, FakeTarget, FakeVocab
from localspec.control.price import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.translated import Reading, TranslatedModel
from localspec.drafters.translation import Translation
from localspec.engine import Engine
from localspec.errors import Cancelled, OutOfMemory, PairingError
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import AcceptRule, SamplingParams, SpecParams
from tests.drafters.tongues import ALPHABET, Pieces, ours, target, theirs, translated
from tests.engine.support import alone, answer, check, in_plain, plain, request

few = settings(max_examples=40, deadline=None)
OURS = ours()
TEXTS = st.lists(st.integers(0, OURS.n_tokens - 1), min_size=1, max_size=60)
SPECS = st.builds(
    SpecParams,
    depth=st.integers(1, 6),
    p_min=st.sampled_from([0.0, 0.0, 0.3]),
    nodes=st.sampled_from([1, 3, 8, 40]),
    width=st.sampled_from([1, 1, 2, 9]),
    mode=st.just("fixed"),
)


def spell(text: str) -> list[int]:
    return OURS.tokenize(text)


def ask(tokens: list[int], *, seq: int = 0, limits: Limits | None = None, rule: AcceptRule = "draw") -> Ask:
    sampling = SamplingParams(temperature=0.0)
    state = SamplerState.start(sampling, seed=1, prompt=tokens, end_tokens={0}, n_ctx=512)
    return Ask(seq, tokens, Price(limits or Limits(4, 4)), state, rule)


def cells(drafter: TranslatedModel, seq: int = 0) -> str:
    """The text that the draft model's cache holds."""
    model = drafter._model
    assert isinstance(model, FakeTarget)
    return in_plain(model.tokens(drafter._lanes[seq]), model.vocab, {0, 1}).rstrip("\ufffd")


def plain_text(tokens: list[int]) -> str:
    return in_plain(tokens, OURS, {0, 1})


# -- the table


def test_tokens_spelt_alike_are_each_other_s() -> None:
    draft = theirs()
    between = Translation(OURS, draft)
    same = {token for token in range(OURS.n_tokens) if between.draft_id(token) is not None}
    assert {OURS.piece(token) for token in same - {0, 1}} == {*ALPHABET, b" a", "é".encode()}
    for token in same - {0, 1}:
        name = between.draft_id(token)
        assert name is not None
        assert draft.piece(name) == OURS.piece(token)
    assert len(between) == len(same)


def test_a_row_in_the_target_s_order() -> None:
    draft = theirs()
    between = Translation(OURS, draft)
    theirs_row = target().scores([5])[: draft.n_tokens].copy()
    row = between.row(theirs_row)
    assert row.shape == (OURS.n_tokens,)
    for token in range(OURS.n_tokens):
        name = between.draft_id(token)
        assert row[token] == (-float("inf") if name is None else theirs_row[name])


def test_of_tokens_spelt_alike_in_one_vocabulary_the_usual_one() -> None:
    double = Pieces([*ALPHABET, b"a"])
    between = Translation(double, theirs())
    assert between.draft_id(2) is not None
    assert between.draft_id(len(ALPHABET) + 2) is None


def test_control_tokens_go_by_their_name() -> None:
    assert Translation(OURS, theirs()).named(1) == 1
    between = Translation(OURS, theirs(name="<other>"))
    assert between.named(1) is None
    assert between.spell([2, 1, 3]) == between.spell([2, 3])


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(PairingError, match=r"tiny\.gguf and the target spell no token alike") as caught:
        Translation(Pieces([b"x", b"y"]), Pieces([b"a", b"b"]), draft_name="tiny.gguf")
    assert caught.value.hint


class Spaced(Pieces):
    """Puts a space in front of what it tokenises, as SentencePiece does."""

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return super().tokenize(f" {text}")


def test_a_space_that_the_tokenizer_adds_is_not_added_twice() -> None:
    draft = Spaced([*ALPHABET, b" a"])
    between = Translation(OURS, draft)
    assert b"".join(map(draft.piece, between.spell(spell(" a b")))) == b" a b"


# -- reading


@few
@given(TEXTS, st.booleans())
def test_reading_piece_by_piece_is_reading_at_once(tokens: list[int], bos: bool) -> None:
    draft = theirs(bos=1 if bos else None)
    between = Translation(OURS, draft)
    growing = Reading(between)
    for n in range(1, len(tokens) + 1):
        text = growing.text(tokens[:n])
        assert text == Reading(between).text(tokens[:n])
        if text:
            assert in_plain(text, draft, {0, 1}) == plain_text(tokens[:n])
            assert not bos or text[0] == 1


def test_borders_inside_a_segment_are_the_draft_model_s_own() -> None:
    between = Translation(OURS, theirs())
    reading = Reading(between)
    tokens: list[int] = []
    for letter in "bcab\n a":
        tokens += spell(letter)
        assert reading.text(tokens) == theirs().tokenize("bcab\n a"[: len(tokens)])


def test_a_character_in_parts_is_read_when_it_is_whole() -> None:
    reading = Reading(Translation(OURS, theirs()))
    euro = [2 + ALPHABET.index(bytes([byte])) for byte in "€".encode()]
    a = spell("a")
    assert reading.text([*a, *euro[:1]]) == []
    assert reading.text([*a, *euro[:2]]) == []
    assert reading.text([*a, *euro]) == theirs().tokenize("a€")
    assert reading.text([*a, *euro[:1], *a]) == theirs().tokenize("a\ufffda")


@pytest.mark.parametrize("token", [0, 1])
def test_texts_of_control_tokens_alone(token: int) -> None:
    drafter = TranslatedModel(
        translated(vocab=theirs(name="<x>"))._model, Translation(Pieces(ALPHABET), theirs(name="<x>"))
    )
    drafter.open(0)
    (draft,) = drafter.propose([ask([1])])
    assert (draft.tree, draft.out) == (TokenTree.root(1), None)


def test_long_texts_without_spaces_are_closed_in_pieces() -> None:
    reading = Reading(Translation(OURS, theirs()))
    tokens = spell("é" * 500)
    for n in range(1, len(tokens) + 1):
        reading.text(tokens[:n])
        assert n - reading._ends[-1][0] <= 32


# -- guessing


def test_guesses_follow_the_text_in_the_target_s_tokens() -> None:
    """The draft model's favourite at every node, among the tokens that both have."""
    drafter, tokens = translated(), spell("ab ca\n")
    drafter.open(0)
    (draft,) = drafter.propose([ask(tokens, limits=Limits(4, 4))])
    model, between = drafter._model, drafter._translation
    text = [*between.spell(tokens)]
    assert draft.tree.draft_n == 4
    for token in draft.tree.tokens[1:]:
        row = between.row(model.scores(text))  # type: ignore[attr-defined]
        assert token == int(row.argmax())
        text += [name] if (name := between.draft_id(token)) is not None else []


@few
@given(
    TEXTS,
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.lists(st.integers(2, 20), max_size=3)), max_size=6),
)
def test_the_cache_is_the_text_whatever_is_kept(tokens: list[int], rounds: list[tuple[int, int, list[int]]]) -> None:
    drafter = translated()
    drafter.open(0)
    for keep, width, more in rounds:
        (draft,) = drafter.propose([ask(list(tokens), limits=Limits(4, 12, width))])
        tree = draft.tree
        path = tree.path(tree.leaves[-1])[1:][:keep]
        drafter.observe(0, len(tokens) - 1, tree, path, FakeRows(target(), Work(0, tree), []))
        tokens = [*tokens, *(tree.tokens[node] for node in path)]
        assert plain_text(tokens).startswith(cells(drafter))
        assert drafter.lag(0, len(tokens)) <= len(tokens)
        tokens = [*tokens, *more, 2]
    fresh = translated()
    fresh.open(0)
    assert drafter.propose([ask(tokens)])[0] == fresh.propose([ask(tokens)])[0]


@few
@given(TEXTS, st.data())
def test_truncating_and_forking_leave_only_what_stands(tokens: list[int], data: st.DataObject) -> None:
    drafter = translated()
    drafter.open(0)
    (draft,) = drafter.propose([ask(tokens, limits=Limits(4, 4))])
    path = range(1, len(draft.tree))
    drafter.observe(0, len(tokens) - 1, draft.tree, path, FakeRows(target(), Work(0, draft.tree), []))
    whole = [*tokens, *draft.tree.tokens[1:]]
    assert draft.tree.draft_n == 0 or drafter.lag(0, len(whole)) <= 1
    n = data.draw(st.integers(0, len(whole)))
    left = plain_text(whole[:n])
    drafter.fork(0, 1, n)
    drafter.truncate(0, n)
    for seq in (0, 1):
        assert left.startswith(cells(drafter, seq))
        other = [*whole[:n], *spell("b ca")]
        fresh = translated()
        fresh.open(seq)
        assert drafter.propose([ask(other, seq=seq)]) == fresh.propose([ask(other, seq=seq)])
    drafter.close(0)
    drafter.close(1)
    assert not drafter._model._cells  # type: ignore[attr-defined]


def test_after_a_step_only_the_new_is_read() -> None:
    drafter, tokens = translated(), spell("ab ca\nab ca ab ca ab")
    drafter.open(0)
    assert drafter.lag(0, len(tokens)) == len(tokens)
    (draft,) = drafter.propose([ask(tokens)])
    drafter.observe(0, len(tokens) - 1, draft.tree, (1, 2), FakeRows(target(), Work(0, draft.tree), []))
    assert drafter.lag(0, len(tokens) + 2) == 0


def test_a_full_context_is_told() -> None:
    drafter = translated(n_ctx=8)
    drafter.open(0)
    (draft,) = drafter.propose([ask(spell("a\nb\nc\na\nb\n"))])
    assert draft.tree.draft_n == 0
    assert draft.out == "the draft model's context of 8 tokens is full"


def test_idle_conversations_make_room() -> None:
    drafter = translated(n_ctx=24)
    drafter.open(0)
    drafter.open(1)
    drafter.propose([ask(spell("a\n" * 8))])
    (draft,) = drafter.propose([ask(spell("b\n" * 8), seq=1)])
    assert draft.tree.draft_n == 4
    assert cells(drafter, 0) == ""
    with pytest.raises(OutOfMemory):
        drafter.propose([ask(spell("a\n" * 8)), ask(spell("b\n" * 8), seq=1)])


def test_an_interrupt_leaves_the_cache_and_the_next_guesses_as_they_were() -> None:
    drafter, tokens = translated(), spell("ab ca")
    drafter.open(0)
    before = drafter.propose([ask(tokens)])
    drafter.interrupt(True)
    with pytest.raises(Cancelled):
        drafter.propose([ask([*tokens, *spell(" b")])])
    drafter.interrupt(False)
    assert drafter.propose([ask(tokens)]) == before


# -- the promise


@few
@given(TEXTS, st.integers(0, 50), SPECS, st.sampled_from([0.0, 0.8, 1.5]), st.booleans(), st.booleans())
def test_the_text_is_the_target_s_own(
    prompt: list[int], seed: int, spec: SpecParams, temperature: float, ignore_eos: bool, bos: bool
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=seed, ignore_eos=ignore_eos, repeat_penalty=1.1)
    wish = request(prompt, sampling=sampling, spec=spec, n=40, logprobs=2)
    got = alone(target(seed), wish, [translated(seed, vocab=theirs(bos=1 if bos else None))])
    assert got.told == alone(target(seed), plain(wish)).told
    assert not got.notices


@few
@given(TEXTS, st.integers(0, 50), SPECS)
def test_rule_ratio_is_exact_at_temperature_zero(prompt: list[int], seed: int, spec: SpecParams) -> None:
    spec = SpecParams(spec.depth, 0, spec.p_min, spec.nodes, spec.width, accept="ratio", mode="fixed")
    wish = request(prompt, spec=spec, n=40)
    got = alone(target(seed), wish, [translated(seed)])
    assert got.told == alone(target(seed), plain(wish)).told
    assert not got.notices


@pytest.mark.parametrize("rule", ["draw", "ratio"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_guesses_hold(rule: AcceptRule, temperature: float) -> None:
    """Models that agree about bytes agree about many tokens: without this, nothing above would show a fault."""
    sampling = SamplingParams(temperature=temperature, seed=2, ignore_eos=True)
    wish = request(spell("ab ca"), sampling=sampling, spec=SpecParams(depth=4, accept=rule, mode="fixed"), n=200)
    got = alone(target(3), wish, [translated(3)])
    assert got.stats.accepted > 40
    assert not got.notices


def test_regenerate_and_another_turn() -> None:
    """The same conversation again, cut in the middle, and gone on with: caches are checked after every step."""
    engine = Engine(target(4, sequences=2), [translated(4, sequences=2)])
    spec = SpecParams(depth=4, nodes=8, width=2, mode="fixed")
    first = request(spell("ab ca\nab"), spec=spec, n=30)
    one = answer(engine, first)
    turn = [*first.tokens, *one.ids]  # type: ignore[misc]
    for prompt in (list(first.tokens or ()), turn[: len(turn) // 2], [*turn, *spell("\nb a")], spell("ca")):
        for temperature in (0.0, 1.0):
            sampling = SamplingParams(temperature=temperature, seed=5)
            wish = request(prompt, sampling=sampling, spec=spec, n=30)
            assert answer(engine, wish).told == alone(target(4), plain(wish)).told
    check(engine)


def test_a_draft_model_of_other_ids_and_the_same_words() -> None:
    between = Translation(FakeVocab(9), FakeVocab(12))
    assert [between.draft_id(token) for token in range(9)] == list(range(9))
