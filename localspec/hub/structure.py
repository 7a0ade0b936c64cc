"""What is wrong with a file's structure, as far as its header tells."""

from __future__ import annotations

from localspec.hub.header import Header, structure_fault
from localspec.hub.names import Split


def fault_of(header: Header) -> str | None:
    """Where its tensors are, and its place in a split model; ``None`` if nothing is wrong."""
    return structure_fault(header, _block) or _split_fault(header)


def _block(kind: int) -> tuple[int, int] | None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        elements, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (KeyError, ValueError):
        return None
    return int(elements), int(size)


def _split_fault(header: Header) -> str | None:
    """What is wrong with a part's place in its set; its header counts from 0."""
    split, count = Split.of(header.path.name), header.number("split.count")
    if split is None:
        return f"it is one of {count} parts, but its name does not say so" if (count or 1) > 1 else None
    if count is not None and (count, header.number("split.no")) != (split.count, split.index - 1):
        return f"its name is that of another part than its header ({header.number('split.no')} of {count})"
    return None
