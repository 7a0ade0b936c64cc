"""``localspec serve``: the engine behind HTTP."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.cli.diagnostics import note, say
from localspec.cli.session import Progress, model_files, tell
from localspec.errors import ExitCode, UsageError
from localspec.host import HostedEngine
from localspec.options import Values, engine_options, request
from localspec.options.values import file_text
from localspec.text.printable import one_line

if TYPE_CHECKING:
    from localspec.engine_options import EngineOptions
    from localspec.server.run import Load, Plan
    from localspec.server.setting import Setting
    from localspec.vocab import Vocab

_NEEDED = ("starlette", "uvicorn")


def serve(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        UsageError: what is needed is not installed, a key file that cannot be used, or an address that cannot be had.
        LocalspecError: as `localspec.hub.resolve` and `localspec.load`.
    """
    for name in _NEEDED:
        if find_spec(name) is None:
            raise UsageError(f"localspec serve needs {name}", hint="Install it: pip install 'localspec[server]'.")
    from localspec.server.run import Serving

    plan, progress = _plan(values), Progress()
    target, draft = model_files(values, progress.fetch)
    options = engine_options(values, target, draft)
    serving = Serving(plan, _loader(values, plan, options, progress), note)
    say(f"listening on {serving.url}")
    if not plan.local and not plan.keys:
        note(f"{plan.host} is open to whoever can reach it: give a key with --api-key-file, or use --host 127.0.0.1")
    serving.run()
    return ExitCode.OK


def _plan(values: Values) -> Plan:
    from localspec.server.answering import Limits
    from localspec.server.gate import bad_origins
    from localspec.server.run import Plan

    origins = tuple(one.strip().rstrip("/") for one in values["cors_origins"].split(",") if one.strip())
    if wrong := bad_origins(origins):
        raise UsageError(f"--cors-origins {wrong[0]} is no origin", hint="Write it as https://chat.example, or *.")
    limits = Limits(
        body_bytes=values["max_body"] << 20,
        answer_s=float(values["timeout"]),
        ping_s=float(values["sse_ping_interval"]),
    )
    return Plan(
        host=values["host"],
        port=values["port"],
        sequences=values["parallel"],
        queue=values["queue"],
        drain_s=values["drain"],
        limits=limits,
        keys=keys_of(values),
        origins=origins,
        slots=values["slots"],
        metrics=values["metrics"],
    )


def keys_of(values: Values) -> tuple[str, ...]:
    """Those of ``--api-key`` and of its file.

    Raises:
        UsageError: a file that cannot be read or that has none, or a key that is empty or that no header can carry.
    """
    given = values["api_key"]
    keys = [] if given is None else [key.strip() for key in given.split(",")]
    if not all(keys):
        raise UsageError("--api-key has an empty key", hint="Leave it out if anybody may ask.")
    if (name := values["api_key_file"]) is not None:
        lines = [line.strip() for line in file_text("--api-key-file", name).splitlines()]
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise UsageError(f"{name} has no key", hint="Write one on a line.")
        keys += found
    if not all(key.isascii() and key.isprintable() and " " not in key for key in keys):
        raise UsageError("a key has characters that no header carries", hint="Use ASCII without spaces.")
    return tuple(keys)


def _loader(values: Values, plan: Plan, options: EngineOptions, progress: Progress) -> Load:
    """Loads the engine, and in this process its vocabulary, which turns texts into tokens while the engine works."""
    from localspec.server.run import answers
    from localspec.server.setting import Setting

    base = request(values, prompt="")

    def load(wanted: Callable[[], bool]) -> tuple[HostedEngine, Setting]:
        vocab = read_vocabulary(options.target.path)
        with progress.loading(options.target.path, None if options.draft is None else options.draft.path):
            engine = HostedEngine(options, on_progress=lambda name, share: progress.stage(name, share) and wanted())
        tell(engine.info, values, progress)
        setting = Setting(
            base,
            engine.info,
            vocab,
            alias=values["alias"],
            reasoning=values["reasoning"],
            places=plan.places,
            system=values["system"],
        )
        say(f"ready: {one_line(setting.name)}, {answers(plan.sequences)} at a time, {plan.queue} may wait")
        return engine, setting

    return load


def read_vocabulary(path: Path) -> Vocab:
    """The vocabulary of a file, without its weights; it stays in memory to the end."""
    from localspec.backends.llamacpp import Native
    from localspec.backends.llamacpp.model import load_vocabulary
    from localspec.backends.llamacpp.vocab import LlamaVocab

    native = Native()
    return LlamaVocab(native.lib, native.lib.llama_model_get_vocab(load_vocabulary(native, path)))
