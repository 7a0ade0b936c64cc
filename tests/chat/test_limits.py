"""The template in a model's file is a stranger's program."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from contextlib import suppress

import pytest

from localspec.chat import ChatTemplate, limits
from localspec.errors import ModelError
from localspec.types import Message

HELLO = [Message("user", "hello")]


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less patience: what runs into the time limit does so sooner."""
    monkeypatch.setattr(limits, "SECONDS", 0.4)


def render(source: str) -> str:
    return ChatTemplate(source, "evil.gguf").render(HELLO, bos="", eos="").text


BOMBS = {
    "nested loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "nested loops in one line of set": (
        "{% set ns = namespace(n=0) %}{% for i in range(100000) %}{% for j in range(100000) %}"
        "{% set ns.n = ns.n + 1 %}{% endfor %}{% endfor %}"
    ),
    "recursive macro": ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"),
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "output": "{% for i in range(100000) %}{{ 'abcdefgh' * 700 }}{% endfor %}",
    "output in a block": "{% set x %}{% for i in range(90000) %}{{ 'a' * 9000 }}{% endfor %}{% endset %}",
    "repetition": "{{ 'a' * 500000000 }}",
    "repetition the other way round": "{{ 500000000 * 'a' }}",
    "repetition of a list": "{{ ([0] * 500000000)|length }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "product": ("{% set ns = namespace(x=9) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}"),
    "percent": "{{ '%500000000d' % 1 }}",
    "percent with a star": "{{ '%*d' % (500000000, 1) }}",
    "percent precision": "{{ '%.500000000f' % 1 }}",
    "percent filter": "{{ '%500000000d'|format(1) }}",
    "format": "{{ '{:500000000d}'.format(1) }}",
    "format with a nested width": "{{ '{:{w}}'.format(1, w=500000000) }}",
    "format by item": "{{ 'x {:>500000000}'['format'](1) }}",
    "center": "{{ 'a'.center(500000000) }}",
    "center filter": "{{ 'a'|center(500000000) }}",
    "zfill": "{{ 'a'.zfill(500000000) }}",
    "ljust in map": "{{ range(100000)|map('string')|map('center', 100000)|list|length }}",
    "expandtabs": "{{ '\t'.expandtabs(500000000) }}",
    "expandtabs by keyword": "{{ '\t'.expandtabs(tabsize=500000000) }}",
    "replace": "{% set a = 'a' * 100000 %}{{ a.replace('a', a) }}",
    "replace filter": "{% set a = 'a' * 100000 %}{{ a|replace('a', a) }}",
    "join": "{% set a = 'a' * 100000 %}{{ a.join(range(100000)|map('string')) }}",
    "join filter": "{% set a = 'a' * 100000 %}{{ range(100000)|join(a) }}",
    "indent": "{{ ('\n' * 10000)|indent(100000, blank=true) }}",
    "json indent": "{{ [[1]]|tojson(indent=500000000) }}",
    "date width": "{{ strftime_now('%500000000d') }}",
    "doubling by ~": (
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
    ),
    "doubling by +": (
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"
    ),
    "doubling by set": (
        "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}"
        "{% set ns.x = y %}{% endfor %}"
    ),
    "shared lists": (
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"
    ),
    "shared dicts": (
        "{% set ns = namespace(x={}) %}{% for i in range(60) %}"
        "{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}"
        "{{ ns.x|tojson }}"
    ),
    "shared views": (
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
        "{% set ns.x = {1: ns.x, 2: ns.x}.values() %}{% endfor %}{{ ns.x }}"
    ),
    "many lists kept": (
        "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
        "{% set ns.x = [ns.x, range(100000)|list] %}{% endfor %}"
    ),
}


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_soon_in_bounded_memory_with_an_error_that_names_the_file(name: str) -> None:
    start = time.thread_time()
    with pytest.raises(ModelError, match=r"evil\.gguf") as caught:
        render(BOMBS[name])
    assert time.thread_time() - start < 2
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("name", ["ljust in map", "many lists kept", "repetition", "doubling by set", "join"])
def test_memory_of_a_bomb(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ModelError):
            render(BOMBS[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 << 20


def test_a_thread_other_than_the_main_one_is_stopped_too() -> None:
    messages: list[str] = []

    def work() -> None:
        try:
            render(BOMBS["nested loops"])
        except ModelError as error:
            messages.append(error.message)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert messages == ["the chat template of evil.gguf was stopped: it takes longer than 1.5 s"]


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("source", ["fine", BOMBS["nested loops"], BOMBS["repetition"], "{{ nothing.there }}"])
def test_the_trace_function_is_put_back(source: str) -> None:
    def mine(*_: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(mine)
    try:
        with suppress(ModelError):
            render(source)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is mine


ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'].mro() }}",
    "{{ (''|attr('__class__')).mro() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__globals__['re'] }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ 'x'.encode() }}",
    "{{ (1).to_bytes(500000000, 'big') }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ lipsum.__globals__ }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    with pytest.raises(ModelError, match=r"evil\.gguf"):
        render(source)


def test_a_long_conversation_is_far_from_the_limits() -> None:
    source = (
        "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set ns.all = ns.all + [m] %}{% endfor %}"
        "{% for m in ns.all %}<{{ m.role }}>{{ m.content|trim }}{{ '\n' ~ loop.index }}{% endfor %}"
    )
    turns = [Message("user" if i % 2 == 0 else "assistant", "some words " * 400) for i in range(300)]
    text = ChatTemplate(source, "long").render(turns, bos="", eos="").text
    assert text.count("words") == 120_000
