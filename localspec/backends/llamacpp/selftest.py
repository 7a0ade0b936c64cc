"""Does this build of llama.cpp survive its own fast path on this CPU?

Some builds die with SIGILL at the first decode: gcc 12 miscompiles the AMX tile set-up, and wheels made for another
CPU do the same. A child process decodes a tiny model with weights repacked for this CPU ("extra buffers"), once per
library file; if that dies, extra buffers stay off from then on, and the user is told.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from localspec.backends.identity import machine_fingerprint
from localspec.backends.llamacpp.native import Native
from localspec.errors import EngineError

SKIP = "LOCALSPEC_NO_EXTRA_BUFFERS"
TIMEOUT = 120  # seconds


def extra_buffers_are_safe(native: Native, warn: Callable[[str], None], *, cache: Path | None = None) -> bool:
    """Whether weights may be repacked; remembered per library file in the user's cache.

    Args:
        warn: called with one line when they may not.
        cache: file the verdicts are kept in; default is in the user's cache folder.

    Raises:
        EngineError: this build cannot decode at all.
    """
    if os.environ.get(SKIP):
        return False
    file = cache or _cache_file()
    key = machine_fingerprint(Path(native.library_path).parent)
    verdicts = _read(file)
    safe = verdicts.get(key)
    if safe is None:
        safe = _try(extra_buffers=True) is None
        if not safe and (death := _try(extra_buffers=False)) is not None:
            raise EngineError(
                f"this build of llama.cpp cannot run on this CPU ({death})",
                hint="Rebuild it with scripts/setup, or install llama-cpp-python with -DGGML_NATIVE=OFF.",
            )
        _write(file, verdicts | {key: safe})
        if not safe:
            warn(
                "this build of llama.cpp crashes with weights repacked for this CPU: repacking stays off,"
                " which is slower (scripts/setup makes a build without the fault)"
            )
    return safe


def remembered(native: Native, *, cache: Path | None = None) -> bool | None:
    """What an earlier `extra_buffers_are_safe` of this build found out; ``None``: it was never asked."""
    return _read(cache or _cache_file()).get(machine_fingerprint(Path(native.library_path).parent))


def _cache_file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("localspec") / "selftest.json"


def _read(file: Path) -> dict[str, bool]:
    try:
        verdicts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return verdicts if isinstance(verdicts, dict) else {}


def _write(file: Path, verdicts: dict[str, bool]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(verdicts), encoding="utf-8")
        part.replace(file)
    except OSError:
        pass  # a read-only home costs a second at each start, nothing else


def _try(*, extra_buffers: bool) -> str | None:
    """Runs the decode in a child; ``None`` if it lived, else how it died."""
    try:
        child = subprocess.run(
            [sys.executable, "-m", __name__, "on" if extra_buffers else "off"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT} s"
    if child.returncode == 0:
        return None
    died = {number.value: number.name for number in signal.Signals}
    return died.get(-child.returncode, f"exit code {child.returncode}")


def write_tiny_model(path: Path, *, width: int = 256) -> None:
    """A random one-layer model without tokenizer, in the quantised types that get repacked."""
    import gguf
    import numpy as np

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // 4)
    writer.add_vocab_size(width)
    writer.add_tokenizer_model("none")
    types = gguf.GGMLQuantizationType
    for name, kind in {
        "token_embd.weight": types.Q8_0,
        "output.weight": types.Q8_0,
        "blk.0.attn_q.weight": types.Q4_0,
        "blk.0.attn_k.weight": types.Q4_1,
        "blk.0.attn_v.weight": types.Q8_0,
        "blk.0.attn_output.weight": types.Q4_0,
        "blk.0.ffn_gate.weight": types.Q4_1,
        "blk.0.ffn_up.weight": types.Q8_0,
        "blk.0.ffn_down.weight": types.Q4_0,
    }.items():
        weights = rng.normal(0, 0.05, (width, width)).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
        writer.add_tensor(name, np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _decode_tiny_model(*, extra_buffers: bool) -> None:
    from localspec.backends.base import Work
    from localspec.backends.llamacpp.model import LlamaModel
    from localspec.backends.llamacpp.options import LlamaOptions
    from localspec.backends.llamacpp.target import LlamaTarget
    from localspec.spec.tree import TokenTree

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_tiny_model(path)
        options = LlamaOptions(path, n_ctx=64, n_batch=32, branches=1, outputs=32, repack=extra_buffers)
        # Making the target decodes one row; many rows take other kernels.
        target = LlamaTarget(LlamaModel(Native(), options), options)
        target.forward([Work(target.open(), TokenTree.chain([1] * 16))])
        target.close_all()


if __name__ == "__main__":
    _decode_tiny_model(extra_buffers=sys.argv[1] == "on")
