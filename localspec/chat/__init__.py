"""Conversations: chat templates and what they become."""

from __future__ import annotations

from localspec.chat.template import ChatTemplate, default_template, encode_chat

__all__ = ["ChatTemplate", "default_template", "encode_chat"]
