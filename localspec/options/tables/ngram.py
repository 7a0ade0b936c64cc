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
    Option(
        "ngram_mod_n_match",
        ("--spec-ngram-mod-n-match",),
        int,
        8,
        "Tokens that must match (llama.cpp: 24).",
        SPEC,
        "N",
        least=1,
        most=64,
    ),
    Option(
        "ngram_mod_n_min",
        ("--spec-ngram-mod-n-min",),
        int,
        0,
        "Tokens that must be known after a match (llama.cpp: 48).",
        SPEC,
        "N",
        least=0,
        most=256,
    ),
    Option(
        "ngram_mod_n_max",
        ("--spec-ngram-mod-n-max",),
        int,
        64,
        "Tokens guessed after a match at most.",
        SPEC,
        "N",
        least=1,
        most=256,
    ),
    Option(
        "lookup_static",
        ("-lcs", "--lookup-cache-static"),
        str,
        None,
        "A lookup cache of llama.cpp for ngram-cache.",
        SPEC,
        "FILE",
    ),
    Option(
        "lookup_dynamic",
        ("-lcd", "--lookup-cache-dynamic"),
        str,
        None,
        "As -lcs, and preferred to it; it is never written.",
        SPEC,
        "FILE",
    ),
    Option(
        "spec_corpus",
        ("--spec-corpus",),
        str,
        None,
        "A text file, or a folder of them, that suffix and ngram-mod may guess from too.",
        SPEC,
        "FILE",
    ),
)
