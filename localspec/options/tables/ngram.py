"""How drafters that need no model look things up. Names are llama.cpp's."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.tables.groups import SPEC


def _lookup(
    name: str, spec_type: str, *, size_n: tuple[str, ...] = (), size_m: tuple[str, ...] = (), hits: tuple[str, ...] = ()
) -> tuple[Option, ...]:
    """The settings of a drafter that looks up the last tokens, with their former names."""
    flag, most = f"--spec-{spec_type}", 2**31 - 1
    return (
        Option(
            f"{name}_size_n",
            (f"{flag}-size-n",),
            int,
            3,
            "Tokens that must match (llama.cpp: 12).",
            SPEC,
            "N",
            former=size_n,
            least=1,
            most=64,
        ),
        Option(
            f"{name}_size_m",
            (f"{flag}-size-m",),
            int,
            48,
            "Tokens guessed after a match at most.",
            SPEC,
            "N",
            former=size_m,
            least=1,
            most=256,
        ),
        Option(
            f"{name}_min_hits",
            (f"{flag}-min-hits",),
            int,
            1,
            "Matches wanted before guessing.",
            SPEC,
            "N",
            former=hits,
            least=1,
            most=most,
        ),
    )


NGRAM_OPTIONS = (
    *_lookup(
        "ngram",
        "ngram-simple",
        size_n=(
            "--spec-ngram-size-n",
            "--prompt-lookup-min",
            "--prompt-lookup-max",
            "--ngram-prompt-lookup-min",
            "--ngram-prompt-lookup-max",
        ),
        size_m=("--spec-ngram-size-m", "--prompt-lookup-num-tokens"),
        hits=("--spec-ngram-min-hits",),
    ),
    *_lookup("ngram_map_k", "ngram-map-k"),
    *_lookup("ngram_map_k4v", "ngram-map-k4v"),
)
