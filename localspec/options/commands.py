"""The commands as data: what they are for, which options they take, and examples. No command runs from here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from localspec.options.option import Option
from localspec.options.tables.batch import BATCH_OPTIONS
from localspec.options.tables.chat import CHAT_TEMPLATE_OPTIONS, LINE_OPTIONS, SESSION_OPTIONS
from localspec.options.tables.config import CONFIG_OPTIONS, TUNED
from localspec.options.tables.context import CONTEXT_OPTIONS
from localspec.options.tables.devices import DEVICE_OPTIONS
from localspec.options.tables.groups import OUTPUT, SAMPLING, SERVER, SHELF
from localspec.options.tables.model import HF_FILE, HF_TOKEN, HUB_OPTIONS, MODEL_OPTIONS, MODELS_DIR, OFFLINE
from localspec.options.tables.ngram import NGRAM_OPTIONS
from localspec.options.tables.remote import REMOTE_OPTIONS, SPREAD_OPTIONS
from localspec.options.tables.sampling import SAMPLING_OPTIONS
from localspec.options.tables.server import SERVER_OPTIONS
from localspec.options.tables.spec import SPEC_OPTIONS
from localspec.options.tables.text import OUTPUT_OPTIONS, PROMPT_OPTIONS, TEXT_OPTIONS, conversation, show_timings
from localspec.options.tables.tools import (
    API_KEY,
    BENCH_OPTIONS,
    BENCH_TOKENS,
    OUTPUT_FILE,
    TOP_OPTIONS,
    TUNE_OPTIONS,
    TUNE_TOKENS,
    VERIFY_OPTIONS,
    VERIFY_TOKENS,
    for_tools,
)
from localspec.options.tables.train import DRAFT_TRAIN_OPTIONS, HEAD_TRAIN_OPTIONS, OUTTYPE, TRAIN_OPTIONS

#: Which models, and who guesses.
_LOADING_OPTIONS = (*CHAT_TEMPLATE_OPTIONS, *MODEL_OPTIONS, *HUB_OPTIONS, *SPEC_OPTIONS, *NGRAM_OPTIONS)
#: What every command that generates text takes.
GENERATION_OPTIONS = (
    *TEXT_OPTIONS,
    *_LOADING_OPTIONS,
    *SAMPLING_OPTIONS,
    *CONTEXT_OPTIONS,
    *DEVICE_OPTIONS,
)
#: What `bench`, `tune` and `verify` take to load an engine.
_TOOL_OPTIONS = (*_LOADING_OPTIONS, *DEVICE_OPTIONS, *CONFIG_OPTIONS)
_ONLY_COMPLETE = (*OUTPUT_OPTIONS, show_timings(False), conversation(False), *REMOTE_OPTIONS, TUNED, *CONFIG_OPTIONS)
_ONLY_CHAT = (
    *(show_timings(True), conversation(True), *SESSION_OPTIONS, *LINE_OPTIONS),
    *(*REMOTE_OPTIONS, TUNED, *CONFIG_OPTIONS),
)
COMPLETE_OPTIONS = (*PROMPT_OPTIONS, *_ONLY_COMPLETE)
CHAT_OPTIONS = (*PROMPT_OPTIONS, *_ONLY_CHAT)


#: What most people need, in the order of the short help.
_COMMON = ("prompt", "file", "n_predict", "system", "model", "model_draft", "hf_repo", "spec", "temp", "seed")
_COMMON_AND_MACHINE = (*_COMMON, "ctx_size", "threads", "gpu_layers", "config")


@dataclass(frozen=True, slots=True)
class Example:
    what: str
    line: str


@dataclass(frozen=True, slots=True)
class Command:
    """``about`` follows the summary in the help; ``common`` are the options of the short help, all if empty;
    what an example uses is among them. ``looks_into_files``: a broken configuration file does not stop it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    examples: tuple[Example, ...]
    about: str = ""
    common: tuple[str, ...] = ()
    looks_into_files: bool = False

    @property
    def arguments(self) -> tuple[Option, ...]:
        """Options by their place."""
        return tuple(option for option in self.options if not option.flags)


def _argument(name: str, metavar: str, text: str) -> Option:
    return Option(name, (), str, None, text, SHELF, metavar, key=False, required=True)


_MODEL = _argument("model", "MODEL", "user/model[:quant] of the cache, the path of a GGUF file, or demo.")
_CACHED = _argument("model", "MODEL", "user/model[:quant] of the cache; without a quant, all of the repository.")
#: How the doctor names models.
_NAMED = {
    "model": "Target to look into: a GGUF file or its folder, demo, or user/model[:quant] of the cache.",
    "model_draft": "Draft model to look into, and whether it goes with the target (demo, if none is named).",
}
_JSON = Option("json", ("--json",), bool, False, "JSON instead of a table.", OUTPUT)

COMPLETE = Command(
    "complete",
    "Continue a prompt; text goes to stdout, everything else to stderr.",
    (*PROMPT_OPTIONS, *GENERATION_OPTIONS, *_ONLY_COMPLETE),
    (
        Example("The demo model, 64 tokens", "localspec complete -p 'Once upon a time' -n 64"),
        Example("Answer a question about a file", "localspec complete -cnv -p 'Summarise:' -f notes.txt -m big.gguf"),
        Example("For programs", "localspec complete -p 'Once upon a time' --json --logprobs 5"),
        Example("A draft model that guesses ahead", "localspec complete -p Hello -m big.gguf -md small.gguf"),
        Example("What is set, and by whom", "localspec complete --print-config"),
    ),
    'The prompt is -p, then -f; standard input is read for "-", or when neither is given.',
    (*_COMMON_AND_MACHINE, "conversation", "json", "logprobs", "print_config"),
)
CHAT_COMMAND = Command(
    "chat",
    "Chat; ctrl-c stops an answer, ctrl-d leaves (on the full screen also esc and ctrl-q).",
    (*PROMPT_OPTIONS, *GENERATION_OPTIONS, *_ONLY_CHAT),
    (
        Example("The demo model", "localspec chat"),
        Example("A model from Hugging Face", "localspec chat -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),
        Example("A draft model that guesses ahead", "localspec chat -m big.gguf -md small.gguf --temp 0"),
        Example("Without guesses", "localspec chat -m big.gguf --spec off"),
        Example("Where the last chat ended", "localspec chat --resume"),
        Example("A server of any kind in place of a model here", "localspec chat --server http://gpu-box:8080"),
        Example("One question, one answer", "localspec chat -st -p 'Why is the sky blue?'"),
    ),
    "Without a terminal, standard input is one message. /help at the prompt lists what can be done there.",
    (*_COMMON_AND_MACHINE, "server", "resume", "single_turn"),
)
BATCH = Command(
    "batch",
    "Answer the lines of a file, many at a time; each answer is a line of JSON.",
    (*BATCH_OPTIONS, *GENERATION_OPTIONS, conversation(False), *SPREAD_OPTIONS, TUNED, *CONFIG_OPTIONS),
    (
        Example("A file of prompts", "localspec batch in.jsonl -o out.jsonl -n 200"),
        Example("Eight at a time, as questions to a chat model", "localspec batch in.jsonl -o out.jsonl -np 8 -cnv"),
        Example("What was interrupted", "localspec batch in.jsonl -o out.jsonl --resume"),
        Example("Between programs", "localspec batch - -m big.gguf --ordered"),
        Example(
            "Spread over servers", "localspec batch in.jsonl -o out.jsonl --server http://a:8080 --server http://b:8080"
        ),
    ),
    'A line is an object with "prompt" or "messages", perhaps "id", and settings of its own ("temp", "n_predict",'
    ' "spec", …); or a line of OpenAI\'s batch files ("custom_id", "method", "url", "body"), which is answered in their'
    " form. A line that fails has an error in its place, and the exit code is 5. Texts are the same for any -np and"
    " with any guesses; the seed of a line follows from -s and its number.",
    (
        *("output_file", "parallel", "resume", "ordered", "fail_fast", "spec_metrics", "conversation", "system"),
        *("n_predict", "model", "model_draft", "hf_repo", "server", "spec", "max_concurrency", "temp", "seed"),
        *("ctx_size", "threads", "gpu_layers", "config"),
    ),
)
BENCH = Command(
    "bench",
    "Measure what guessing brings: plain and speculative decoding side by side.",
    (
        *BENCH_OPTIONS,
        _JSON,
        *for_tools(tokens=BENCH_TOKENS),
        TUNED,
        *_TOOL_OPTIONS,
    ),
    (
        Example("Does a draft model pay?", "localspec bench -m big.gguf -md small.gguf"),
        Example(
            "Several settings, and a grid of three",
            "localspec bench -m big.gguf --setting 'auto=' --setting 'chain of=--spec fixed --spec-draft-n-max 2,4,8'",
        ),
        Example("In two minutes, for a document", "localspec bench -m big.gguf --budget 120 -o md"),
        Example("A server, with and without", "localspec bench --server http://a:8080 --server-baseline http://b:8080"),
    ),
    "Thirty prompts in six categories come along. Every answer has a plain one right beside it, so that neighbours on"
    " the machine meet both; what counts is the median of the ratios. Texts are compared, too.",
    (
        *("prompts", "setting", "repetitions", "budget", "baseline", "server", "server_baseline", "output", "json"),
        *("n_predict", "model", "model_draft", "hf_repo", "spec", "spec_type", "temp"),
        *("ctx_size", "threads", "gpu_layers", "config"),
    ),
)
#: What options mean to `tune`.
_TRIED = {
    "models_dir": "Try the draft models below this folder, too, if none is named.",
    "spec_type": "Drafters to try, each alone (a comma list); default suffix, ngram-simple, ngram-mod, lookahead, and"
    " draft models.",
}
TUNE = Command(
    "tune",
    "Find out in a minute what guesses best for a target on this machine, and keep it for later runs.",
    (
        *TUNE_OPTIONS,
        replace(_JSON, help="One JSON object instead of a table."),
        *for_tools(tokens=TUNE_TOKENS),
        *(replace(one, help=_TRIED.get(one.name, one.help)) for one in (MODELS_DIR, *_TOOL_OPTIONS)),
    ),
    (
        Example("The demo model", "localspec tune"),
        Example("A pair of models, in five minutes", "localspec tune -m big.gguf -md small.gguf --seconds 300"),
        Example("Which of the draft models here pays?", "localspec tune -m big.gguf --models-dir ~/models"),
        Example("Between two drafters, keeping nothing", "localspec tune --spec-type suffix,lookahead --no-save"),
    ),
    "Passes are timed by thread count; then ways to guess race each other, each answer beside a plain one, and the"
    " slower half leaves, again and again. Without -md, draft models of the target's vocabulary take part that are in"
    " its folder, in the cache or below --models-dir. chat, complete and bench start from what was found until a model,"
    " the llama.cpp library or the processor changes. Ctrl-c shows how it stands and keeps nothing.",
    (
        *("prompts", "seconds", "save", "json", "n_predict"),
        *("model", "model_draft", "hf_repo", "models_dir", "spec_type", "temp"),
        *("ctx_size", "threads", "gpu_layers", "config"),
    ),
)
VERIFY = Command(
    "verify",
    "Check that guessing does not change the text.",
    (
        *VERIFY_OPTIONS,
        replace(_JSON, help="Write the certificate to standard output."),
        *(option for option in for_tools(tokens=VERIFY_TOKENS) if option.group != SAMPLING),
        *_TOOL_OPTIONS,
    ),
    (
        Example("The demo model", "localspec verify"),
        Example("A pair of models, with a certificate", "localspec verify -m big.gguf -md small.gguf -o verified.json"),
        Example("Every way to draw tokens", "localspec verify -m big.gguf --sampler-sets all"),
    ),
    "Every drafter meets every way to draw and every shape of guesses. A text that differs from the plain one is looked"
    " into: it may part from it at a near-tie, and no more often than plain decoding parts from itself when its cells"
    " lie elsewhere. Exit code 7 if that is not so.",
    (
        *("prompts", "sampler_sets", "shapes", "seeds", "output_file", "json", "n_predict"),
        *("model", "model_draft", "hf_repo", "spec", "spec_type", "ctx_size", "threads", "gpu_layers", "config"),
    ),
)
(_TARGET,) = (option for option in MODEL_OPTIONS if option.name == "model")
#: What the doctor makes room for.
_SIZES = ("ctx_size", "cache_type_k", "cache_type_v", "cache_type_k_draft", "cache_type_v_draft")
DOCTOR = Command(
    "doctor",
    "Check this machine, its llama.cpp, and models if some are named; say what mends what is found.",
    (
        replace(_JSON, help="One JSON object with all findings instead of lines."),
        *(replace(option, help=_NAMED[option.name]) for option in MODEL_OPTIONS if option.name in _NAMED),
        *(option for option in CONTEXT_OPTIONS if option.name in _SIZES),
        *CONFIG_OPTIONS,
    ),
    (
        Example("This machine", "localspec doctor"),
        Example("A pair of models, and whether both fit", "localspec doctor -m big.gguf -md small.gguf -c 32768"),
        Example("For programs", "localspec doctor -m big.gguf --json"),
    ),
    "Only headers and vocabularies of models are read. Each line is ok, a note, a warning (it costs speed or a feature)"
    " or a problem (something does not work), with the flag or command that mends it. The exit code is 0 without"
    " problems, 3 if one is with a model or the pair, 6 if they do not fit into memory, else 1.",
    looks_into_files=True,
)
TOP = Command(
    "top",
    "Watch a running server, localspec's or llama.cpp's: speed, guesses, slots.",
    (
        *TOP_OPTIONS,
        replace(_JSON, help="A JSON object a look instead of the screen; with --once, one."),
        replace(API_KEY, help="The server's key."),
        *CONFIG_OPTIONS,
    ),
    (
        Example("A server on this machine", "localspec top"),
        Example("Another one, once", "localspec top -u http://gpu-box:8080 --once"),
        Example("What it looks like, without a server", "localspec top --mock"),
        Example("A log of speeds", "localspec top --json --interval 10"),
    ),
    "It reads /health, /props, /slots and /metrics and changes nothing; what the server does not tell is left out, and"
    " a line says how to make it. On the screen p pauses, + and - change how often it looks, q leaves. Without a"
    " terminal it is --once. The exit code is 4 if the server does not answer at once.",
)
#: What options mean to `serve`.
_SERVED = {
    "system": "System message of conversations that have none.",
    "system_file": "File with the system message of conversations that have none.",
}
SERVE = Command(
    "serve",
    "Serve a model over HTTP: OpenAI's protocol, llama.cpp's endpoints, metrics, a page to chat on.",
    (
        *SERVER_OPTIONS,
        replace(API_KEY, help="Keys, one of which clients must have; a comma list.", group=SERVER),
        *(replace(option, help=_SERVED.get(option.name, option.help)) for option in GENERATION_OPTIONS),
        TUNED,
        *CONFIG_OPTIONS,
    ),
    (
        Example("The demo model; the page is at http://127.0.0.1:8080", "localspec serve"),
        Example("Another one, with a draft model that guesses ahead", "localspec serve -m big.gguf -md small.gguf"),
        Example("For others on the network", "localspec serve -m big.gguf --host 0.0.0.0 --api-key-file keys.txt"),
    ),
    "What is set here holds for requests that do not say otherwise. It needs Starlette and uvicorn: pip install"
    " 'localspec[server]'. SIGTERM or ctrl-c lets running answers finish; the exit code is 0 then.",
    (
        *("host", "port", "api_key", "api_key_file", "parallel", "queue", "n_predict"),
        *("model", "model_draft", "hf_repo", "spec", "temp", "ctx_size", "threads", "gpu_layers", "config"),
    ),
)
MODELS = (
    Command(
        "models ls",
        "List the models that are here: the demo model, the cache, and those of --models-dir.",
        (_JSON, MODELS_DIR, *CONFIG_OPTIONS),
        (Example("With sizes in bytes", "localspec models ls --json"),),
    ),
    Command(
        "models pull",
        "Download a model into the Hugging Face cache.",
        (
            _argument("repo", "REPO[:QUANT]", "user/model, and which quant."),
            HF_FILE,
            OFFLINE,
            HF_TOKEN,
            *CONFIG_OPTIONS,
        ),
        (Example("One quant of a repository", "localspec models pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),),
    ),
    Command(
        "models pair",
        "Say what can draft for a model: models and heads on this machine, then published ones.",
        (
            _argument(
                "model", "MODEL", "As for models info; a repository that drafters are known for need not be here."
            ),
            _JSON,
            MODELS_DIR,
            *CONFIG_OPTIONS,
        ),
        (
            Example("A file", "localspec models pair big.gguf"),
            Example("A model that is not here yet", "localspec models pair Qwen/Qwen3-8B"),
        ),
        "Under each are why it fits, what it needs, and the command that uses it. The hub is not asked: published ones"
        " are those of a list that comes with localspec. How much a drafter gains here, localspec tune measures.",
    ),
    Command(
        "models info",
        "Show what a model is: size, quant, context, template.",
        (_MODEL, _JSON, *CONFIG_OPTIONS),
        (Example("A file", "localspec models info big.gguf"),),
    ),
    Command(
        "models path",
        "Print where the file of a model is.",
        (_MODEL, *CONFIG_OPTIONS),
        (Example("For other programs", "localspec models path ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),),
    ),
    Command(
        "models rm",
        "Remove a model from the cache, and nothing outside of it.",
        (_CACHED, Option("yes", ("-y", "--yes"), bool, False, "Do not ask.", SHELF, key=False), *CONFIG_OPTIONS),
        (Example("Without a question", "localspec models rm -y ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),),
    ),
    Command(
        "models verify",
        "Check whether a model's files are damaged.",
        (_MODEL, *CONFIG_OPTIONS),
        (Example("After a crash", "localspec models verify ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"),),
        "The structure of every file is checked, and in the cache its checksum, too. Of a file elsewhere no checksum is"
        " known: there, damage within its weights is not found.",
    ),
    Command(
        "models convert",
        "Write an EAGLE-3 head of the hub as a GGUF file, which needs no torch to run.",
        (
            _argument("folder", "FOLDER", "config.json and weights: official, SpecForge's or speculators' form."),
            replace(_TARGET, help="The head's target, whose tokenizer goes into the file; not given = demo."),
            replace(OUTPUT_FILE, group=SHELF),
            replace(OUTTYPE, default="f16", group=SHELF),
            *CONFIG_OPTIONS,
        ),
        (
            Example(
                "Then: localspec chat -m big.gguf -md head.gguf",
                "localspec models convert head/ -m big.gguf -o head.gguf",
            ),
        ),
        "What the head was made for has to be the model of -m. Heads that llama.cpp has no form for (EAGLE-1 and -2)"
        " are run from their folder: -md FOLDER.",
    ),
)
_TRAINS = (
    replace(_JSON, help="One JSON object on standard output: what came of it, and the learning curve."),
    replace(_TARGET, help="Target to learn from; not given = demo."),
    *CONFIG_OPTIONS,
)
_TRAINING = (
    "The target writes texts (or answers --prompts, or is given --corpus), is asked what it says of them, and the"
    " drafter learns to say it first. How much of it is accepted is measured on texts that are held out. Ctrl-c, a"
    " power cut or kill -9 lose nothing but seconds: the same command goes on. Needs PyTorch."
)
TRAINING = (
    Command(
        "train eagle3",
        "Train an EAGLE-3 head for a target.",
        (*TRAIN_OPTIONS, *HEAD_TRAIN_OPTIONS, *_TRAINS),
        (
            Example("Ten minutes with the demo model", "localspec train eagle3 -o head.gguf"),
            Example("For one's own texts", "localspec train eagle3 -m big.gguf --from head.gguf --corpus notes"),
            Example("A night, in a folder of its own", "localspec train eagle3 -m big.gguf --minutes 480 --work big.d"),
        ),
        _TRAINING,
    ),
    Command(
        "train draft",
        "Train a small draft model with the tokens of a target.",
        (*TRAIN_OPTIONS, *DRAFT_TRAIN_OPTIONS, *_TRAINS),
        (
            Example("Ten minutes with the demo model", "localspec train draft -o draft.gguf"),
            Example("Smaller than usual", "localspec train draft -m big.gguf --width 128 --layers 2"),
        ),
        _TRAINING,
    ),
)
#: Commands that come in groups, and what the group is for.
GROUPS = {
    "models": "The models on this machine (demo model, cache, --models-dir): list, download, pair, look into, remove.",
    "train": "Make a drafter for a target, from what the target itself says: an EAGLE-3 head, or a small model.",
}
#: What ``localspec help`` explains besides commands.
TOPICS = {
    "flags": "every flag with its other spellings, environment variables and default",
    "keys": "keys and slash commands of the chat",
    "config": "configuration files, profiles, environment",
    "exit-codes": "what a command ends with",
}
COMMANDS = {
    command.name: command
    for command in (CHAT_COMMAND, COMPLETE, BATCH, SERVE, BENCH, TUNE, VERIFY, DOCTOR, TOP, *MODELS, *TRAINING)
}


def all_options() -> tuple[Option, ...]:
    """Every option of every command, each once."""
    seen: dict[str, Option] = {}
    for command in COMMANDS.values():
        for option in command.options:
            if option.flags:
                seen.setdefault(option.name, option)
    return tuple(seen.values())
