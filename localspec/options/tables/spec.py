"""How much is guessed ahead, and how."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.tables.groups import SPEC

SPEC_OPTIONS = (
    Option(
        "spec",
        ("--spec",),
        str,
        "auto",
        "auto = guess what pays, as measured; fixed = guess all that is allowed; off.",
        SPEC,
        "MODE",
        choices=("auto", "fixed", "off"),
    ),
    Option(
        "spec_type",
        ("--spec-type",),
        str,
        None,
        "Drafters (a comma list): none, draft-simple, draft-eagle3, draft-dflash, draft-dspark (-md), draft-mtp (layers"
        " of the target, or -md), suffix, ngram-simple, ngram-map-k, ngram-map-k4v, ngram-mod, ngram-cache, lookahead;"
        " default suffix, with -md what its file is, too.",
        SPEC,
        "LIST",
        env=("LLAMA_ARG_SPEC_TYPE",),
        separator=",",
    ),
    Option(
        "draft_n_max",
        ("--spec-draft-n-max",),
        int,
        None,
        "Guesses on a path at most (depth); 0 = off. Default 16 with --spec auto, 3 with fixed.",
        SPEC,
        "N",
        former=(
            "--draft",
            "--draft-n",
            "--draft-max",
            "--num-speculative-tokens",
            "--speculative-num-steps",
        ),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MAX", "LLAMA_ARG_DRAFT_MAX"),
        least=0,
        most=256,
    ),
    Option(
        "draft_n_min",
        ("--spec-draft-n-min",),
        int,
        0,
        "Drafts shorter than this are dropped.",
        SPEC,
        "N",
        former=("--draft-min", "--draft-n-min"),
        env=("LLAMA_ARG_SPEC_DRAFT_N_MIN", "LLAMA_ARG_DRAFT_MIN"),
        least=0,
        most=256,
    ),
    Option(
        "draft_p_min",
        ("--spec-draft-p-min",),
        float,
        0.0,
        "A path ends where the guess is less likely than this.",
        SPEC,
        "P",
        aliases=("--draft-p-min",),
        env=("LLAMA_ARG_SPEC_DRAFT_P_MIN",),
        least=0,
        most=1,
    ),
    Option(
        "tree_nodes",
        ("--spec-tree-nodes",),
        int,
        16,
        "Guesses in the whole tree at most.",
        SPEC,
        "N",
        former=("--speculative-num-draft-tokens",),
        least=0,
        most=240,
    ),
    Option(
        "tree_width",
        ("--spec-tree-width",),
        int,
        1,
        "Guesses side by side; 1 = a chain.",
        SPEC,
        "N",
        former=("--speculative-eagle-topk",),
        least=1,
        most=64,
    ),
    Option(
        "spec_accept",
        ("--spec-accept",),
        str,
        "draw",
        "Rule for guesses: draw (same text as without) or ratio (same distribution).",
        SPEC,
        "RULE",
        choices=("draw", "ratio"),
    ),
)
#: Names of other programs whose number counts the root of the tree.
COUNTS_THE_ROOT = ("--speculative-num-draft-tokens",)
