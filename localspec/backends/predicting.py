"""Which models carry layers for multi-token prediction that can be run: told from headers. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.errors import UsageError
from localspec.hub.header import Header

#: Architectures of which llama.cpp runs layers for multi-token prediction, and hands out what these read. It loads them
#: of others too, and ends the process when it is to run them. Those that may have several:
CHAINED = frozenset({"hy_v3", "mimo2", "step35"})
PREDICTING = CHAINED | {"cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe"}
#: And those it runs as well, where what was read cannot be taken back.
RECURRENT = frozenset({"bailingmoe3", "glm5-next", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next"})
_OTHERS = "Use a draft model or a head (-md), or n-grams (--spec-type)."


def check_predictors(headers: Sequence[Header]) -> None:
    """Whether llama.cpp can run the layers for multi-token prediction of a model, told before it is loaded from the
    headers of all its parts.

    Raises:
        UsageError: it has none, or none that this build can run.
    """
    first, tensors = headers[0], {tensor.name for header in headers for tensor in header.tensors}
    name, architecture = first.path.name, first.architecture or ""
    count, blocks = (first.number(f"{{arch}}.{key}") or 0 for key in ("nextn_predict_layers", "block_count"))
    there = [f"blk.{blocks - count + layer}.nextn.eh_proj.weight" in tensors for layer in range(count)]
    if not count or not all(there):
        lost = f" ({count} announced, {sum(there)} in the file)" if count else ""
        raise UsageError(
            f"--spec-type draft-mtp: {name} has no layers for multi-token prediction{lost}",
            hint=f"Get a file that was converted with them. {_OTHERS}",
        )
    if architecture in RECURRENT:
        raise UsageError(
            f"--spec-type draft-mtp: {name} has recurrent layers, which cannot take guesses back", hint=_OTHERS
        )
    if architecture not in PREDICTING or (count > 1 and architecture not in CHAINED):
        driven = "one" if architecture in PREDICTING else "none"
        raise UsageError(
            f"--spec-type draft-mtp: {name} has {count} layers for multi-token prediction, and of the architecture"
            f" {architecture} {driven} can be run",
            hint=_OTHERS,
        )
