"""Chat templates by name, for models whose file has none or a bad one.

Written from the formats' descriptions. A role that a format has no place for (a system message in Gemma's) is refused,
so that `localspec.chat.repair` finds it another place and the user hears of it.
"""

from __future__ import annotations

_PROMPT = "{% if add_generation_prompt %}"


def _turns(role: str, text: str, end: str, *, prompt: str, start: str = "") -> str:
    """A format in which every role has the same frame."""
    turn = f"{role}{{{{ {text} }}}}{end}"
    return f"{start}{{% for message in messages %}}{turn}{{% endfor %}}{_PROMPT}{prompt}{{% endif %}}"


def _instructions(question: str, answer: str, *, system: str = "") -> str:
    """A format of questions and answers in turn. ``question`` and ``answer`` hold ``TEXT``; ``system``, if the format
    has a place of its own for it, too. Otherwise a system message is refused."""
    refuse = "{{ raise_exception('there is no system role') }}"
    return (
        "{{ bos_token }}{% for message in messages %}"
        f"{{% if message.role == 'system' %}}{system or refuse}"
        f"{{% elif message.role == 'user' %}}{question}"
        f"{{% else %}}{answer}{{% endif %}}{{% endfor %}}"
    ).replace("TEXT", "{{ message.content|trim }}")


CHATML = _turns("<|im_start|>{{ message.role }}\n", "message.content", "<|im_end|>\n", prompt="<|im_start|>assistant\n")

_LLAMA2 = (
    "{% set ns = namespace(system='') %}{% for message in messages %}"
    "{% if message.role == 'system' %}{% set ns.system = '<<SYS>>\n' ~ message.content|trim ~ '\n<</SYS>>\n\n' %}"
    "{% elif message.role == 'user' %}"
    "{{ bos_token }}[INST] {{ ns.system }}{{ message.content|trim }} [/INST]{% set ns.system = '' %}"
    "{% else %} {{ message.content|trim }} {{ eos_token }}{% endif %}{% endfor %}"
)

_VICUNA = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content|trim }} "
    "{% elif message.role == 'user' %}USER: {{ message.content|trim }} "
    "{% else %}ASSISTANT: {{ message.content|trim }}{{ eos_token }}{% endif %}{% endfor %}"
    f"{_PROMPT}ASSISTANT:{{% endif %}}"
)

_ALPACA = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message.role == 'system' %}{{ message.content|trim }}\n\n"
    "{% elif message.role == 'user' %}### Instruction:\n{{ message.content|trim }}\n\n"
    "{% else %}### Response:\n{{ message.content|trim }}{{ eos_token }}\n\n{% endif %}{% endfor %}"
    f"{_PROMPT}### Response:\n{{% endif %}}"
)

_MODEL_FOR_ASSISTANT = "{{ 'model' if message.role == 'assistant' else message.role }}"
_GEMMA = (
    "{{ bos_token }}"
    "{% if messages and messages[0].role == 'system' %}{{ raise_exception('there is no system role') }}{% endif %}"
) + _turns(
    f"<start_of_turn>{_MODEL_FOR_ASSISTANT}\n",
    "message.content|trim",
    "<end_of_turn>\n",
    prompt="<start_of_turn>model\n",
)

_MISTRAL_V3 = _instructions("[INST] TEXT[/INST]", " TEXT{{ eos_token }}")

_TEMPLATES = {
    "alpaca": _ALPACA,
    "chatml": CHATML,
    "gemma": _GEMMA,
    "llama2": _LLAMA2,
    "llama3": _turns(
        "<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n",
        "message.content|trim",
        "<|eot_id|>",
        start="{{ bos_token }}",
        prompt="<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "mistral": _MISTRAL_V3,
    "mistral-v1": _instructions(" [INST] TEXT [/INST]", " TEXT{{ eos_token }}"),
    "mistral-v3": _MISTRAL_V3,
    "mistral-v7": _instructions(
        "[INST]TEXT[/INST]", "TEXT{{ eos_token }}", system="[SYSTEM_PROMPT]TEXT[/SYSTEM_PROMPT]"
    ),
    "phi3": _turns("<|{{ message.role }}|>\n", "message.content|trim", "<|end|>\n", prompt="<|assistant|>\n"),
    "phi4": _turns(
        "<|im_start|>{{ message.role }}<|im_sep|>",
        "message.content",
        "<|im_end|>",
        prompt="<|im_start|>assistant<|im_sep|>",
    ),
    "vicuna": _VICUNA,
    "zephyr": _turns("<|{{ message.role }}|>\n", "message.content", "{{ eos_token }}\n", prompt="<|assistant|>\n"),
}

NAMES = tuple(_TEMPLATES)


def builtin_template(name: str) -> str | None:
    """The Jinja text of that name (one of `NAMES`)."""
    return _TEMPLATES.get(name)
