"""What travels between front ends and the engine: requests, events, statistics of one step.

Everything here is a frozen dataclass and can be pickled, because the engine may live in another process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from localspec.errors import ExitCode, LocalspecError, PromptError, UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FinishReason = Literal["stop", "length", "cancelled", "error"]
AcceptRule = Literal["draw", "ratio"]
SpecMode = Literal["auto", "fixed", "off"]

#: The order llama.cpp applies its samplers in. Each is off where its own option turns it off. ``adaptive_p`` has to be
#: named in ``--samplers``, and comes last wherever it is named.
DEFAULT_SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typ_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is drawn from a row of logits. Names and defaults are llama.cpp's.

    ``temperature <= 0`` is greedy. ``top_k <= 0``, ``top_p >= 1``, ``min_p <= 0`` and ``typical_p >= 1`` are
    off. ``repeat_last_n`` is the window of the three penalties: 0 off, -1 the whole context. ``seed=None``
    asks for entropy; the seed used is reported in ``Started``. ``min_tokens`` keeps end tokens away until so
    many tokens are out. ``grammar`` is a text in GBNF: only what its rule ``root`` stands for can come.

    Off by default: ``top_n_sigma <= 0``, ``xtc_probability <= 0`` or ``xtc_threshold > 0.5``, ``dynatemp_range <= 0``,
    ``dry_multiplier <= 0`` (its window ``dry_penalty_last_n`` as ``repeat_last_n``), ``adaptive_target < 0``,
    ``mirostat`` 0. With ``mirostat`` 2 the temperature is all that is left of the other samplers. A
    ``dynatemp_range`` above 0 makes a ``temperature`` of 0 the middle of a range: not greedy.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    logit_bias: tuple[tuple[int, float], ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    seed: int | None = None
    grammar: str | None = None


@dataclass(frozen=True, slots=True)
class SpecParams:
    """How much may be guessed ahead, and by which rule guesses are accepted.

    ``depth`` tokens on a path at most (``--spec-draft-n-max``; 0 = no speculation), drafts shorter than
    ``min_depth`` are dropped, a path ends where the draft's own probability falls under ``p_min``;
    ``width`` children a node at most (1 = chain), ``nodes`` draft nodes in the whole tree. ``types`` picks among
    the drafters that the engine was loaded with; ``None`` = all of them. ``mode`` says who decides within these
    limits: ``auto`` the controller, by what pays; ``fixed`` nobody, all that is allowed is guessed; ``off``.
    """

    depth: int = 3
    min_depth: int = 0
    p_min: float = 0.0
    nodes: int = 16
    width: int = 1
    accept: AcceptRule = "draw"
    types: tuple[str, ...] | None = None
    mode: SpecMode = "auto"

    @property
    def off(self) -> bool:
        """Nothing may be guessed."""
        return self.mode == "off" or min(self.depth, self.nodes) == 0


#: Who may speak in a conversation that somebody sends, and as whom.
ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. ``more`` are other fields that a chat template may look at, names and JSON values:
    ``tool_calls``, ``tool_call_id``, …"""

    role: str
    content: str
    more: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer asked for. Exactly one of ``prompt``, ``tokens`` and ``messages`` is given.

    ``prompt`` is tokenised with special tokens parsed only when ``special`` is set; ``messages`` go through
    the model's chat template and their contents never turn into control tokens. ``max_tokens < 0`` means
    until the context is full. ``logprobs = k`` asks for the target's log-probability (before temperature and
    filters) of each token and of its k best rivals. ``trace`` adds target probabilities and the verified
    tree to every event. ``template_kwargs`` are more variables for the chat template: names and JSON values. If the
    last of ``messages`` is an assistant's, it is gone on with. ``draft_from`` are texts that the answer may repeat in
    part, such as the one it replaces: guesses are made from them (with ``suffix``, under the name ``earlier``), the
    answer is the same, and they are forgotten when it is over. ``steps``: it makes so many verify steps (0: it reads
    its prompt) and then waits until its handle is granted more; ``None``: it never waits.
    """

    prompt: str | None = None
    tokens: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    spec: SpecParams = field(default_factory=SpecParams)
    special: bool = False
    logprobs: int | None = None
    trace: bool = False
    template_kwargs: tuple[tuple[str, object], ...] = ()
    draft_from: tuple[str, ...] = ()
    steps: int | None = None

    def __post_init__(self) -> None:
        given = [x for x in (self.prompt, self.tokens, self.messages) if x is not None]
        if len(given) != 1:
            raise UsageError("a request needs exactly one of prompt, tokens and messages", hint="Give one of them.")
        if any(not s for s in self.stop):
            raise UsageError("a stop string is empty", hint="Leave it out or give it some text.")
        if self.logprobs is not None and self.logprobs < 0:
            raise UsageError(f"logprobs {self.logprobs} is negative", hint="Give 0 or more.")
        if self.steps is not None and self.steps < 0:
            raise UsageError(f"steps {self.steps} is negative", hint="Give 0 or more.")
        if self.spec.accept not in ("draw", "ratio"):
            raise UsageError(f"acceptance rule {self.spec.accept} is not known", hint="Use draw or ratio.")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that might have stood at a position: its bytes and the target's log-probability."""

    id: int
    piece: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One emitted token and where it came from.

    ``source`` names the drafter that guessed it, ``""`` if the target drew it unguessed; ``depth`` is its
    depth in the tree (1 = first guess, 0 = unguessed); ``draft_p`` the drafter's probability for it.
    ``target_p``, ``logprob`` and ``top`` are the target's, before temperature and filters, and only there
    when asked for. ``piece`` is the token's bytes: joined they are the text.
    """

    id: int
    piece: bytes
    source: str = ""
    depth: int = 0
    draft_p: float | None = None
    target_p: float | None = None
    logprob: float | None = None
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeTrace:
    """The tree of one step as it was verified: for drawing it. Node 0 is the pending token. ``target_p`` is the
    target's probability of each node given its parent (``None`` for node 0)."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    scores: tuple[float, ...]
    sources: tuple[str, ...]
    path: tuple[int, ...]
    pieces: tuple[bytes, ...] = ()
    target_p: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class StepStats:
    """One verify step of one sequence.

    ``draft_n`` nodes were drafted and verified, ``tested`` edges lay on the walk, ``accepted`` of them held;
    ``emitted`` tokens went out (accepted + 1, less what an end token, a stop or a limit cut off, which is
    ``cut``). Times are seconds of the whole step, shared by all sequences that ran in it; ``t_plain`` what as many
    tokens take without guesses, as measured (``None``: nobody measures).
    """

    draft_n: int
    tested: int
    accepted: int
    emitted: int
    cut: int
    t_draft: float
    t_verify: float
    t_host: float
    tree: TreeTrace | None = None
    t_plain: float | None = None

    def __add__(self, later: StepStats) -> StepStats:
        """Both steps as one, with the newest tree."""
        return StepStats(**_sums(self, later, tree=later.tree or self.tree))


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Guesses of one drafter: nodes verified, nodes accepted."""

    name: str
    draft_n: int
    accepted: int


def _by_name(*sources: SourceStats) -> tuple[SourceStats, ...]:
    """One for each drafter, in the order of their first."""
    sums: dict[str, SourceStats] = {}
    for one in sources:
        before = sums.get(one.name, SourceStats(one.name, 0, 0))
        sums[one.name] = SourceStats(**_sums(before, one, name=one.name))
    return tuple(sums.values())


def _sums(one: DataclassInstance, other: DataclassInstance, **apart: object) -> dict[str, Any]:
    """The sums of two of a kind, field by field, so that a new field is added without being named here. ``apart`` are
    those that no sum makes."""
    summed = (part.name for part in fields(one) if part.name not in apart)
    return {**{name: _sum(getattr(one, name), getattr(other, name)) for name in summed}, **apart}


def _sum(one: Any, other: Any) -> Any:
    """What nobody knows of the one nobody knows of both; counts by place are added place by place."""
    if one is None or other is None:
        return None
    if isinstance(one, tuple):
        return tuple(x + y for x, y in zip_longest(one, other, fillvalue=0))
    return one + other


@dataclass(frozen=True, slots=True)
class SpecStats:
    """Statistics of one answer; `localspec.stats.StatsBook` is the one place that computes them.

    ``acceptance`` = accepted / drafted-and-verified as llama.cpp counts; ``alpha`` = accepted / tested edges
    of the walk; ``mean_length`` = 1 + accepted / steps that had a draft; ``tokens_per_step`` over all steps;
    ``speedup`` = ``t_plain``, the measured time of plain decoding for the same tokens, / ``t_judged``, the time of the
    steps for which that is known; where anything was drafted. ``break_even`` = the ``mean_length`` at which steps with
    guesses would have been as fast as plain ones: ``plain_worth`` is the time of ``judged_drafts`` of them, in tokens
    of plain decoding.
    Rates are ``None`` before there is anything to divide by. ``accepted_at[i]`` counts accepted tokens at
    depth i + 1, ``tested_at[i]`` the tests there; ``lengths[k]`` the drafted steps that accepted k.
    """

    steps: int = 0
    drafted_steps: int = 0
    draft_n: int = 0
    tested: int = 0
    accepted: int = 0
    emitted: int = 0
    cut: int = 0
    t_draft: float = 0.0
    t_verify: float = 0.0
    t_host: float = 0.0
    t_plain: float = 0.0
    t_judged: float = 0.0
    plain_worth: float = 0.0
    judged_drafts: int = 0
    accepted_at: tuple[int, ...] = ()
    tested_at: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    by_source: tuple[SourceStats, ...] = ()

    def __add__(self, other: SpecStats) -> SpecStats:
        """Counts and seconds of both; rates follow from them."""
        return SpecStats(**_sums(self, other, by_source=_by_name(*self.by_source, *other.by_source)))

    @property
    def acceptance(self) -> float | None:
        return self.accepted / self.draft_n if self.draft_n else None

    @property
    def alpha(self) -> float | None:
        return self.accepted / self.tested if self.tested else None

    @property
    def mean_length(self) -> float | None:
        return 1 + self.accepted / self.drafted_steps if self.drafted_steps else None

    @property
    def break_even(self) -> float | None:
        return self.plain_worth / self.judged_drafts if self.judged_drafts else None

    @property
    def speedup(self) -> float | None:
        return self.t_plain / self.t_judged if self.draft_n and self.t_judged else None

    @property
    def tokens_per_step(self) -> float | None:
        return self.emitted / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class Timings:
    """Clock of one answer, in seconds; it stands still while the answer waits for steps to be granted. ``predicted_s``
    runs from the first token to the last; ``first_n`` tokens came in one step with the first."""

    prompt_n: int
    cache_n: int
    prompt_s: float
    ttft_s: float
    predicted_n: int
    predicted_s: float
    first_n: int = 1

    @property
    def timed_n(self) -> int:
        """Tokens that came later than the first: those that ``predicted_s`` is the time of."""
        return max(self.predicted_n - self.first_n, 0)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of all steps but the first / their time; ``None`` for answers of a single step."""
        return self.timed_n / self.predicted_s if self.timed_n and self.predicted_s > 0 else None


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is tokenised: ``prompt_n`` tokens, of which ``cache_n`` are already in the cache. ``waited_s``:
    seconds that it waited for its turn; the event itself may come as late as its first pass ends."""

    request: int
    prompt_n: int
    cache_n: int
    seed: int
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Prefill:
    request: int
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one step brought. ``text`` may be shorter than its tokens' bytes (held back for a stop string or an
    unfinished character) and the rest follows later; all texts joined are the answer."""

    request: int
    text: str
    tokens: tuple[TokenInfo, ...]
    step: StepStats | None


@dataclass(frozen=True, slots=True)
class Paced:
    """An answer whose verify steps are granted may make ``left`` more; at 0 it waits. Comes after every such step, so
    that no reader, however slow, gets two of them as one; and when it begins to wait without having made one."""

    request: int
    left: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a drafter stands from now on: ``in use``, ``left alone`` by the controller since it does not pay, or
    ``paused`` since it cannot guess; and why."""

    drafter: str
    state: Literal["in use", "left alone", "paused"]
    why: str

    @property
    def text(self) -> str:
        return f"{self.drafter} is {self.state}: {self.why}"


@dataclass(frozen=True, slots=True)
class Notice:
    """One line the user should see; the answer goes on. ``about``: the drafter it is about, if it is."""

    request: int
    text: str
    about: Standing | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is over. ``ids`` are exactly the tokens of the text, none where a server does not tell them; ``stop``
    is the stop string or end token that ended it, if one did."""

    request: int
    reason: FinishReason
    ids: tuple[int, ...]
    stop: str | None
    timings: Timings
    stats: SpecStats

    @property
    def n(self) -> int:
        """Tokens of the answer: a server counts them, though it does not tell which they are."""
        return len(self.ids) or self.timings.predicted_n


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer could not be finished; the text so far stands."""

    request: int
    kind: str
    message: str
    hint: str
    exit_code: ExitCode
    #: Of a prompt that is too long.
    facts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, request: int, error: LocalspecError) -> Failed:
        facts = error.facts if isinstance(error, PromptError) else ()
        return cls(request, type(error).__name__, error.message, error.hint, error.exit_code, facts)


@dataclass(frozen=True, slots=True)
class Placement:
    """What of one model lies on one device: how many layers, bytes of weights, bytes of cache, and of what its passes
    compute with, where that is told."""

    device: str
    layers: int
    bytes_weights: int
    bytes_cache: int
    bytes_buffers: int = 0


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """How one model was loaded. ``role`` is ``target`` or ``draft``; ``settings`` are names and values as they reached
    llama.cpp; ``placement`` says where its weights and its cache are."""

    role: str
    path: str
    settings: tuple[tuple[str, str], ...] = ()
    placement: tuple[Placement, ...] = ()


@dataclass(frozen=True, slots=True)
class Exact:
    """What makes answers the same to the bit, and its price: rows are computed ``rows`` at a time, always. A step
    without guesses takes ``step_s`` seconds so and ``plain_s`` as it is, both measured at a short context when the
    model was loaded."""

    rows: int
    step_s: float
    plain_s: float

    @property
    def price(self) -> float:
        """Times as long as without."""
        return self.step_s / self.plain_s

    @property
    def parts(self) -> tuple[str, str]:
        """What is done, and its price."""
        return (
            f"rows are computed {self.rows} at a time",
            f"a step without guesses takes {self.price:.2f} times as long ({1000 * self.step_s:.1f} for"
            f" {1000 * self.plain_s:.1f} ms)",
        )


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine runs: shown by every front end. Paths are as given; ``warnings`` are one line each;
    ``chat_template`` is the Jinja text in use; ``exact`` says how answers are the same to the bit, if they are.
    ``server`` is the URL of the one that answers, and ``target`` then its name for the model; ``None``: all is here."""

    target: str
    draft: str | None
    drafters: tuple[str, ...]
    backend: str
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    has_template: bool
    warnings: tuple[str, ...] = ()
    loads: tuple[ModelLoad, ...] = ()
    chat_template: str | None = None
    exact: Exact | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """An engine at one moment.

    ``running`` answers and ``waiting`` requests; ``cells`` of ``n_ctx`` in use or promised, ``kept`` conversations that
    nobody uses now. ``guessing`` is whether guesses are allowed under this load, ``why`` why not. Of the last pass
    ``rows`` and how many of them were ``guesses``, with the ``prompt_rows`` beside them. All since it was loaded:
    ``passes``, and tokens of prompts that were computed and that were found in the cache.
    """

    running: int
    waiting: int
    cells: int
    n_ctx: int
    kept: int
    guessing: bool
    why: str
    rows: int
    guesses: int
    prompt_rows: int
    passes: int
    prompt_computed: int
    prompt_reused: int


Event = Started | Prefill | Tokens | Paced | Notice | Finished | Failed
