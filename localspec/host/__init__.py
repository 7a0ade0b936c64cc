"""The engine in a process of its own: a native abort becomes an event, not the end of the front end."""

from __future__ import annotations

from localspec.host.hosted import HostedEngine, HostedHandle

__all__ = ["HostedEngine", "HostedHandle"]
