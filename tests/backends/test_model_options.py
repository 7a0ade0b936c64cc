"""Options of a model that make no sense on any machine are refused where they are made."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.options import ModelOptions, RopeOptions
from localspec.errors import UsageError

MODEL = Path("model.gguf")


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"split_mode": "rows"}, "-sm rows"),
        ({"tensor_split": (0.0, 0.0)}, "-ts 0,0"),
        ({"tensor_split": (1.0, -1.0)}, "-ts 1,-1"),
        ({"cpu_moe": -2}, "-ncmoe -2"),
    ],
)
def test_refused(values: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        ModelOptions(MODEL, **values)
    assert flag in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"scaling": "dynamic"}, "--rope-scaling dynamic"),
        ({"freq_base": 0.0}, "--rope-freq-base 0"),
        ({"freq_scale": float("nan")}, "--rope-freq-scale nan"),
        ({"scaling": "none", "freq_scale": 0.5}, "nothing would be scaled"),
    ],
)
def test_refused_rope(values: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        RopeOptions(**values)
    assert flag in caught.value.message
    assert caught.value.hint


def test_what_is_fine() -> None:
    rope = RopeOptions(scaling="none", freq_scale=1.0)
    options = ModelOptions(MODEL, split_mode="row", tensor_split=(0.0, 1.0), cpu_moe=-1, rope=rope)
    assert pickle.loads(pickle.dumps(options)) == options
