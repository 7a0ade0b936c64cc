"""JSON schemas: texts of their grammars fit them, and what no grammar can say is refused by name."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.grammar import parse, schema_grammar
from localspec.grammar.automaton import DEAD, Automaton
from tests.grammar.support import schema_language
from tests.support.json_schema import fits

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 10},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", 'b"c', 3, None]}, "minItems": 1, "maxItems": 3},
        "x": {"type": ["null", "number"]},
    },
    "required": ["name", "age"],
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v"],
        }
    },
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "yes", "no"),
    [
        ({}, ["{}", '{"a": [1, {}]}'], ["[]", "1"]),
        (True, ["[]", "1", "null", '"a"'], ["nul", ""]),
        (
            PERSON,
            ['{"name":"Ada","age":36}', '{"name": "é😀" ,\n "age": 0, "tags": ["b\\"c",3], "x": -1.5e3}'],
            ['{"age":1,"name":"A"}', '{"name":"","age":1}', '{"name":"A","age":151}', '{"name":"A"}', "{}"],
        ),
        (
            PERSON | {"additionalProperties": {"type": "boolean"}},
            ['{"name":"A","age":1,"nam":true,"names":false,"":true}'],
            [f'{{"name":"A","age":1,{more}}}' for more in ('"name":true', '"n":1', '"\\u006eame":true')],
        ),
        ({"properties": {"a": {}, "b": {}}}, ["{}", '{"a":1}', '{"b":[]}', '{"a":{},"b":2}'], ['{"b":1,"a":1}']),
        ({"required": ["a"], "additionalProperties": True}, ['{"a":1,"z":2}'], ["{}", '{"z":1}']),
        (TREE, ['{"v":1,"kids":[{"v":2},{"v":3,"kids":[]}]}'], ['{"kids":[]}']),
        ({"anyOf": [{"type": "null"}, {"const": {"a": 1}}]}, ["null", '{"a":1}'], ["1"]),
        (
            {"type": "string", "anyOf": [{"maxLength": 1}, {"format": "date"}]},
            ['"a"', '"2024-12-31"'], ['"ab"', '"2024-13-01"'],
        ),
        ({"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}]}, ['[1,"a"]'], ["[1]", '[1,"a",2]']),
        ({"type": "array", "items": {}, "maxItems": 0}, ["[]", "[ ]"], ["[1]"]),
        (
            {"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {"const": 2}}, "required": ["b"]}],
             "$defs": {"a": {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}}},
            ['{"a":1,"b":2}'], ['{"a":1}', '{"b":2}'],
        ),
        (
            {"type": "string", "pattern": r'^[A-Z]{2}-\d+("|\\|x\.)?$'},
            ['"AB-1"', r'"AB-1\""', r'"AB-1\\"', '"AB-1x."'], ['"AB-"', '"ab-1"', '"AB-1xy"'],
        ),
        ({"type": "string", "minLength": 1, "maxLength": 1}, ['"\\u00e9"', '"\\n"'], ['"\\ud83d\\ude00"', '""']),
        ({"type": "number", "minimum": 0}, ["0.5", "12", "1e5"], ["-1", "01"]),
        ({"enum": ["a", 1, None], "type": ["string", "null"]}, ['"a"', "null"], ["1"]),
        ({"type": "string", "format": "uuid"}, ['"123e4567-e89b-12d3-a456-426614174000"'], ['"123"']),
    ],
)  # fmt: skip
def test_texts(schema: Any, yes: list[str], no: list[str]) -> None:
    holds = schema_language(schema)
    assert [one for one in yes if not holds(one)] == []
    assert [one for one in no if holds(one)] == []


BOUNDS = st.one_of(st.none(), st.integers(-1300, 1300))


@settings(deadline=None, max_examples=40)
@given(low=BOUNDS, high=BOUNDS, near=st.lists(st.integers(-1400, 1400), max_size=20))
def test_bounds_of_integers(low: int | None, high: int | None, near: list[int]) -> None:
    if low is not None and high is not None and low > high:
        low, high = high, low
    given = {"minimum": low, "maximum": high}
    holds = schema_language({"type": "integer"} | {key: value for key, value in given.items() if value is not None})
    edges = [end + by for end in (low, high) if end is not None for by in (-1, 0, 1)]
    for number in (*near, *edges, 0, 9, 10, 99, 100, -9, -10):
        fine = (low is None or number >= low) and (high is None or number <= high)
        assert holds(str(number)) == fine, (low, high, number)


@pytest.mark.parametrize("schema", [PERSON, PERSON | {"additionalProperties": True}, TREE, {"items": PERSON}], ids=str)
def test_whatever_the_grammar_writes_fits_the_schema(schema: Any) -> None:
    automaton = Automaton(parse(schema_grammar(json.dumps(schema))))
    chance = random.Random(7)
    written = 0
    for _ in range(60):
        text = _write(automaton, chance)
        if text is not None:
            written += 1
            value = json.loads(text, object_pairs_hook=_no_key_twice)
            assert fits(value, schema, schema), text
    assert written > 20


def _write(automaton: Automaton, chance: random.Random) -> bytes | None:
    state, text = automaton.start, bytearray()
    for _ in range(400):
        ways = [byte for byte in range(256) if automaton.step(state, int(automaton.kinds[byte])) != DEAD]
        if automaton.accepts(state) and (not ways or chance.random() < 0.5):
            return bytes(text)
        # Brackets and quotes that close come more often, or texts would not end.
        weights = [40 if byte in b'"}]' else 10 if byte < 128 else 1 for byte in ways]
        text.append(chance.choices(ways, weights)[0])
        state = automaton.step(state, int(automaton.kinds[text[-1]]))
    return None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "neither an object nor true"),
        ("false", "no value fits"),
        ("[" * 100_000, "nested too deeply"),
        ('{"items":' * 100 + "{}" + "}" * 100, "nested too deeply"),
        (" " * (1 << 21), "characters"),
        ('{"type": "strin"}', "the type 'strin' is not known"),
        ('{"type": {}}', "is not known"),
        ('{"not": {}}', "not is not supported"),
        ('{"uniqueItems": true, "type": "array"}', "uniqueItems is not supported"),
        ('{"properties": {"a": {"multipleOf": 2, "type": "integer"}}}', "at properties/a: multipleOf"),
        ('{"type": "string", "format": "email"}', "format email is not supported"),
        ('{"type": "string", "pattern": "a"}', "does not say all of the text"),
        ('{"type": "string", "pattern": "^(?=a)$"}', "look around"),
        ('{"type": "string", "pattern": "^a*?$"}', "lazy"),
        ('{"type": "string", "pattern": "^(a$"}', "never closed"),
        ('{"type": "string", "minLength": 2, "maxLength": 1}', "minLength is more than maxLength"),
        ('{"type": "string", "maxLength": 1000000}', "maxLength is 1000000"),
        ('{"type": "integer", "minimum": 3, "maximum": 2}', "no integer lies"),
        ('{"type": "integer", "minimum": 1e300}', "minimum is 1e+300"),
        ('{"type": "number", "maximum": 3}', "bounds of a number"),
        ('{"required": ["a"], "additionalProperties": false}', "required names 'a'"),
        ('{"$ref": "http://example.com"}', "outside the schema"),
        ('{"$ref": "#/nowhere"}', "leads nowhere"),
        ('{"enum": []}', "enum is no list"),
        ('{"const": NaN}', "NaN is no number"),
        ('{"const": 1e999}', "one of its values is no JSON"),
        ('{"allOf": [{"$ref": 3}]}', "outside the schema"),
        ('{"allOf": [{"properties": 3}, {"properties": {}}]}', "two things of properties"),
        ('{"allOf": [{"additionalProperties": false}, {"type": "object"}]}', "allOf with"),
        ('{"allOf": [{"additionalProperties": false}], "type": "object"}', "allOf with"),
        ('{"type": "string", "anyOf": [{"type": "null"}]}', "type beside anyOf"),
        ('{"anyOf": [{}], "properties": {}}', "properties is not supported here"),
        ('{"nullable": true, "type": "string"}', "nullable is not supported"),
    ],
)  # fmt: skip
def test_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        schema_grammar(text)
    assert caught.value.hint
    assert len(str(caught.value)) < 400


KEYS = [
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "enum",
    "minLength", "maxLength", "pattern", "format", "minimum", "exclusiveMaximum", "const", "anyOf", "allOf", "$ref",
    "$defs", "title", "a",
]  # fmt: skip
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 12), st.floats(),
        st.sampled_from(["string", "object", "array", "integer", "null", "#", "#/$defs/a", "^a*$", "\ud800", '"']),
    ),
    lambda some: st.one_of(st.lists(some, max_size=3), st.dictionaries(st.sampled_from(KEYS), some, max_size=4)),
    max_leaves=10,
)  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(JSON)
def test_any_json_is_read_or_refused(value: Any) -> None:
    with suppress(UsageError):
        Automaton(parse(schema_grammar(json.dumps(value))))


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$ref": "#/$defs/0",
            "$defs": {"3000": {}} | {str(i): {"items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(3000)},
        },
        {"properties": {f"key {i}": {} for i in range(1000)}, "additionalProperties": True},
        {"enum": [f"value {i}" for i in range(3000)]},
    ],
    ids=["references", "properties", "values"],
)
def test_large_schemas(schema: Any) -> None:
    Automaton(parse(schema_grammar(json.dumps(schema))))


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#"}]},
        {"allOf": [{"$ref": "#/a"}], "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}},
        {"$ref": "#/a", "a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}},
        {"required": ["a"], "properties": {"a": {"$ref": "#"}}},
    ],
    ids=str,
)
def test_schemas_that_never_end_are_refused(schema: Any) -> None:
    with pytest.raises(UsageError):
        parse(schema_grammar(json.dumps(schema)))
