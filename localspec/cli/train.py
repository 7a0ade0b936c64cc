"""``localspec train``: a drafter for a target."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.cli.diagnostics import note
from localspec.cli.output import Output
from localspec.cli.session import files_here
from localspec.cli.training import Telling
from localspec.errors import ExitCode, UsageError
from localspec.hub.header import architecture
from localspec.models.demo import demo_model
from localspec.options import Values
from localspec.options.tables.train import MINUTES
from localspec.tools.prompts import read_prompts
from localspec.torch_drafters import require_torch

if TYPE_CHECKING:
    from localspec.train.drive import Job, Trained
    from localspec.train.inputs import Wish
    from localspec.train.kinds import Kind

#: Where texts come from, each instead of the others: flag → option.
_TEXTS = {"--prompts": "prompts", "--corpus": "corpus", "--from-log": "from_log"}


def eagle3(values: Values) -> int:
    """Trains a head; returns the exit code.

    Raises:
        LocalspecError: PyTorch is missing, the target or a text cannot be read, or the work folder is another's.
    """
    require_torch("localspec train")
    from localspec.train.kinds import HeadKind

    return _train(values, HeadKind(values["guessable"], values["outtype"], _origin(values, "eagle3")))


def draft(values: Values) -> int:
    """As `eagle3`, a small model."""
    require_torch("localspec train")
    from localspec.train.kinds import SmallKind

    return _train(values, SmallKind(values["width"], values["depth"], values["outtype"], _origin(values, "llama")))


def _train(values: Values, kind: Kind) -> int:
    from localspec.train.drive import drive
    from localspec.train.inputs import source_of

    target = files_here({**values, "model_draft": None})[0] or demo_model()
    job, wish = _job(values, kind, target), _wish(values)
    source = source_of(wish, target)
    with Telling() as telling, _stopping(telling):
        trained = drive(job, source, telling)
    if values["json"]:
        Output().record(_record(job, trained))
    if not trained.finished:
        note(f"stopped; the same command goes on from {job.work}")
        return ExitCode.INTERRUPTED
    note(f"wrote {job.out}")
    return ExitCode.OK


def _job(values: Values, kind: Kind, target: Path) -> Job:
    from localspec.train.drive import Job

    out, minutes, tokens = Path(values["output_file"]), values["minutes"], values["train_tokens"]
    check_output(out)
    if minutes is None and tokens is None:
        minutes = MINUTES
    return Job(
        kind=kind,
        target=target,
        out=out,
        work=_path(values["work"]) or out.with_suffix(".train"),
        seconds=None if minutes is None else 60 * minutes,
        tokens=tokens,
        seed=values["seed"],
        threads=values["threads"],
        hub=_path(values["hub_form"]),
    )


def check_output(out: Path) -> None:
    """Before a night is spent on what cannot be kept.

    Raises:
        UsageError: ``out`` is a folder, or cannot be written.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder, not a file to write to", hint="Name a file with -o, e.g. -o head.gguf.")
    if not out.parent.is_dir() or not os.access(out.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{out.parent} is no folder to write to", hint="Check -o.")


def _wish(values: Values) -> Wish:
    from localspec.train.inputs import Wish

    given = [flag for flag, name in _TEXTS.items() if values[name] is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} exclude each other", hint="Train twice, with --from.")
    prompts = values["prompts"]
    questions = () if prompts is None else tuple(one.messages for one in read_prompts(Path(prompts)))
    return Wish(questions, _path(values["corpus"]), _path(values["from_log"]))


def _path(value: str | None) -> Path | None:
    return None if value is None else Path(value)


def _origin(values: Values, wanted: str) -> Path | None:
    """A drafter of the architecture ``wanted`` to go on from."""
    origin = _path(values["origin"])
    if origin is not None and not origin.is_file():
        raise UsageError(f"--from {origin} is not there", hint="Give a GGUF file that localspec train made.")
    if origin is not None and (found := architecture(origin)) != wanted:
        raise UsageError(
            f"--from {origin.name} is of the architecture {found}, not {wanted}",
            hint="Go on from a drafter of the kind that is to be trained.",
        )
    return origin


@contextmanager
def _stopping(telling: Telling) -> Iterator[None]:
    """Ctrl-c ends the training after what is being done; a second one at once, which loses seconds of it."""

    def stop(_number: int, _frame: object) -> None:
        if telling.stopped:
            raise KeyboardInterrupt
        telling.stop()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _record(job: Job, trained: Trained) -> dict[str, Any]:
    curve = [
        {"tokens": one.tokens, "length": one.acceptance.length, "acceptance": list(one.acceptance.by_position)}
        for one in trained.curve
    ]
    return {
        "kind": "localspec train",
        "drafter": str(job.out),
        "target": str(job.target),
        "work": str(job.work),
        "finished": trained.finished,
        "steps": trained.steps,
        "tokens": trained.tokens,
        "texts": trained.texts,
        "seconds": trained.seconds,
        "curve": curve,
    }
