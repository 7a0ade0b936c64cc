"""Conversations: chat templates and what they become."""

from __future__ import annotations

from localspec.chat.builtin import builtin_template
from localspec.chat.notices import notices
from localspec.chat.reasoning import Reasoning, reasoning_of
from localspec.chat.sources import template_from, template_variables
from localspec.chat.template import ChatTemplate, default_template, encode_chat

__all__ = [
    "ChatTemplate",
    "Reasoning",
    "builtin_template",
    "default_template",
    "encode_chat",
    "notices",
    "reasoning_of",
    "template_from",
    "template_variables",
]
