"""What a row is worth: prices and limits handed to drafters, and the thread count."""

from __future__ import annotations

from localspec.control.auto import AutoController
from localspec.control.controller import Controller, FixedController, PassRecord, Walk, Wish
from localspec.control.cost import CostCurve
from localspec.control.load import LoadGuard
from localspec.control.price import Limits, Price
from localspec.control.threads import ThreadTuner, core_count

__all__ = [
    "AutoController",
    "Controller",
    "CostCurve",
    "FixedController",
    "Limits",
    "LoadGuard",
    "PassRecord",
    "Price",
    "ThreadTuner",
    "Walk",
    "Wish",
    "core_count",
]
