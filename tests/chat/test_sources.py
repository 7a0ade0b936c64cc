from __future__ import annotations

from pathlib import Path

import pytest

from localspec.chat import builtin_template, template_from, template_variables
from localspec.chat.template import ChatTemplate
from localspec.errors import ExitCode, UsageError


def test_a_template_by_name_by_text_and_from_a_file(tmp_path: Path) -> None:
    named, written = template_from("chatml"), template_from("{{ messages[0].content }}")
    assert named == ChatTemplate(builtin_template("chatml") or "", "chatml")
    assert written == ChatTemplate("{{ messages[0].content }}", "--chat-template")
    path = tmp_path / "modell ü.jinja"
    path.write_text("\ufeff{{ 'ü' }}\n", encoding="utf-8")
    assert template_from(file=path) == ChatTemplate("{{ 'ü' }}\n", str(path))
    assert template_from() is None


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("chatlm", "'chatlm' is neither a name nor Jinja", "Did you mean chatml?"),
        ("llama9000xyz", "neither a name nor Jinja", "Names: alpaca, chatml"),
        ("", "neither a name nor Jinja", "Names: "),
        ("{% if %}", "--chat-template is broken in line 1", "by name"),
    ],
)
def test_templates_that_are_none(text: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        template_from(text)
    assert hint in caught.value.hint
    assert caught.value.exit_code is ExitCode.USAGE


def test_files_that_are_no_templates(tmp_path: Path) -> None:
    path = tmp_path / "t.jinja"
    with pytest.raises(UsageError, match="No such file"):
        template_from(file=path)
    for content, says in (
        (b"\xff", "not UTF-8"),
        (b" \n", "is empty"),
        (b"{{ x", r"t\.jinja is broken in line 1"),
        (b"x" * ((1 << 20) + 1), "more than 1 MB"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=says):
            template_from(file=path)
    with pytest.raises(UsageError, match="directory"):
        template_from(file=tmp_path)
    with pytest.raises(UsageError, match="both given"):
        template_from("chatml", path)


def test_variables() -> None:
    assert template_variables(None) == ()
    assert template_variables('{"enable_thinking": false, "x": [1, {"y": null}]}') == (
        ("enable_thinking", False),
        ("x", [1, {"y": None}]),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("enable_thinking=false", "is not JSON"),
        ("", "is not JSON"),
        ("[" * 10**5, "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"messages": []}', "may not set messages"),
        ('{"enable-thinking": true}', "'enable-thinking' is no variable's name"),
    ],
)
def test_variables_that_are_none(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"--chat-template-kwargs.*{says}") as caught:
        template_variables(text)
    assert caught.value.hint
    assert len(caught.value.message) < 200
