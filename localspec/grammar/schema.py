"""JSON schemas to GBNF, so that a schema is a grammar like any other.

The texts are those of llama.cpp's converter in what matters: properties come in the schema's order, whitespace is
scarce, and an object takes further properties only where ``additionalProperties`` says so. What the schema asks for and
no grammar can say is refused by name, never left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.errors import UsageError
from localspec.grammar.book import RuleBook
from localspec.grammar.gbnf import MAX_REPEATS, MAX_TEXT
from localspec.grammar.regex import pattern
from localspec.grammar.texts import integers, json_literal

Schema = Mapping[str, Any]

MAX_DEPTH = 64  # schemas in schemas
_DIGITS = 16

_NOTES = {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "example",
    "deprecated", "readOnly", "writeOnly", "discriminator",
}  # fmt: skip
_OF_TYPE = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "boolean": (),
    "null": (),
}
_PYTHON: dict[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
_WAYS = ("anyOf", "oneOf")
_DATE = '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])'
_TIME = (
    '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{3})?'
    ' ("Z" | [+-] ([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9])'
)
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f'{_DATE} "T" {_TIME}',
    "uuid": 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}',
}


def schema_grammar(text: str) -> str:
    """The grammar of a JSON schema, given as JSON. The schema ``{}`` stands for any object, as in llama.cpp.

    Raises:
        UsageError: it is no JSON, no schema, too large, or asks for what no grammar can say; with the place in it.
    """
    if len(text) > MAX_TEXT:
        raise UsageError(f"the JSON schema has {len(text)} characters", hint=f"At most {MAX_TEXT} are read.")
    try:
        schema = json.loads(text, parse_constant=_refuse)
        if isinstance(schema, dict | bool):
            return _Converter(schema).gbnf()
    except RecursionError:
        raise UsageError("the JSON schema is nested too deeply", hint=f"Nest less than {MAX_DEPTH} deep.") from None
    except ValueError as error:
        raise UsageError(f"the JSON schema is no JSON: {error}", hint="Mind the quotes of the shell.") from None
    raise UsageError("the JSON schema is neither an object nor true", hint='Write it as {"type": …}.')


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


class _Converter:
    def __init__(self, schema: Schema | bool) -> None:
        self._schema = schema
        self._book = RuleBook()
        self._refs: dict[str, str] = {}
        self._waiting: list[str] = []  # references that are yet to be followed
        self._path: list[str] = []

    def gbnf(self) -> str:
        root = self._book.json("object") if self._schema == {} else self._visit(self._schema, "top")
        while self._waiting:
            ref = self._waiting.pop()
            self._path = [ref]
            self._book.write(self._refs[ref], self._visit(self._find(ref), self._refs[ref]))
        return self._book.gbnf(root)

    # -- one schema

    def _visit(self, schema: Any, name: str) -> str:
        """The name of the rule for ``schema``."""
        if schema is True or (isinstance(schema, dict) and not schema.keys() - _NOTES):
            return self._book.json("value")
        if not isinstance(schema, dict):
            raise self._error("no value fits the schema false" if schema is False else "this is no schema")
        if len(self._path) > MAX_DEPTH:
            raise self._error("it is nested too deeply", f"Nest less than {MAX_DEPTH} deep, or use $ref.")
        if "$ref" in schema:
            self._only(schema, ("$ref",))
            return self._ref(schema["$ref"])
        return self._book.add(name, self._text(schema, name))

    def _text(self, schema: Schema, name: str) -> str:
        for key in ("const", "enum"):
            if key in schema:
                self._only(schema, (key, "type"))
                return self._values([schema[key]] if key == "const" else schema[key], schema.get("type"))
        for key in _WAYS:
            if key in schema:
                return self._either(schema, key, name)
        if "allOf" in schema:
            return self._inside("allOf", self._joined(schema), name)
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            known = [key for one in kind for key in _OF_TYPE.get(str(one), ())]
            self._only(schema, ("type", *known))
            return " | ".join(self._inside("type", self._as_type(schema, one), f"{name}-{one}") for one in kind)
        return self._typed(schema, self._kind(schema), name)

    def _as_type(self, schema: Schema, kind: Any) -> Schema:
        keys = _OF_TYPE.get(str(kind), ())
        return {"type": kind} | {key: value for key, value in schema.items() if key in keys}

    def _kind(self, schema: Schema) -> str:
        kind = schema.get("type")
        if kind is None:  # said by what else is asked for
            kind = next((kind for kind, keys in _OF_TYPE.items() if any(key in schema for key in keys)), None)
        if kind is None:
            self._only(schema, ())
        if not isinstance(kind, str) or kind not in _OF_TYPE:
            raise self._error(f"the type {kind!r} is not known", f"Types are {', '.join(_OF_TYPE)}.")
        return kind

    def _typed(self, schema: Schema, kind: str, name: str) -> str:
        self._only(schema, ("type", *_OF_TYPE[kind]))
        if not any(key in schema for key in _OF_TYPE[kind]):
            return self._book.json(kind)
        makers = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
        }
        return makers[kind](schema, name)

    # -- values, alternatives, references

    def _values(self, values: Any, kind: Any) -> str:
        if not isinstance(values, list) or not values:
            raise self._error("enum is no list of values")
        kinds = kind if isinstance(kind, list) else [kind]
        fitting = [value for value in values if kind is None or any(_is(value, one) for one in kinds)]
        if not fitting:
            raise self._error(f"none of its values is of type {kind}")
        self._book.json("space")
        try:
            return "(" + " | ".join(dict.fromkeys(map(json_literal, fitting))) + ") space"
        except ValueError:  # a number beyond all floats
            raise self._error("one of its values is no JSON") from None

    def _either(self, schema: Schema, key: str, name: str) -> str:
        self._only(schema, (key, "type"))
        ways = schema[key]
        if not isinstance(ways, list) or not ways:
            raise self._error(f"{key} is no list of schemas")
        shared = {"type": schema["type"]} if "type" in schema else {}
        found = []
        for i, way in enumerate(ways):
            if shared and isinstance(way, dict):
                if "$ref" in way or way.get("type", schema["type"]) != schema["type"]:
                    raise self._error(f"type beside {key} of other types is not supported", "Write it in each.")
                way = shared | way
            found.append(self._inside(f"{key}/{i}", way, f"{name}-{i}"))
        return " | ".join(dict.fromkeys(found))

    def _joined(self, schema: Schema) -> Schema:
        """``allOf`` as one schema: the properties of all its parts, and what only one of them says."""
        parts = schema["allOf"]
        if not isinstance(parts, list) or not parts:
            raise self._error("allOf is no list of schemas")
        joined: dict[str, Any] = {}
        for part in (*map(self._resolved, parts), {key: value for key, value in schema.items() if key != "allOf"}):
            for key, value in part.items():
                if key not in _NOTES:
                    joined[key] = self._both(key, joined[key], value) if key in joined else value
        beside = schema.keys() - _NOTES - {"allOf"}
        if "additionalProperties" in joined and (len(parts) > 1 or beside):
            raise self._error("allOf with additionalProperties is not supported", "Join its schemas by hand.")
        return joined

    def _both(self, key: str, one: Any, other: Any) -> Any:
        if one == other:
            return one
        if key == "required" and isinstance(one, list) and isinstance(other, list):
            return one + other
        if key == "properties" and isinstance(one, dict) and isinstance(other, dict):
            return one | {name: self._both(name, one.get(name, value), value) for name, value in other.items()}
        raise self._error(f"allOf says two things of {key}", "Join its schemas by hand.")

    def _resolved(self, part: Any) -> Schema:
        for _ in range(MAX_DEPTH):
            if not isinstance(part, dict):
                raise self._error("allOf holds what is no object", "Join its schemas by hand.")
            if part.keys() - _NOTES != {"$ref"}:
                return part
            part = self._find(part["$ref"])
        raise self._error("its references lead in a circle")

    def _ref(self, ref: Any) -> str:
        self._find(ref)
        if ref not in self._refs:
            self._refs[ref] = self._book.reserve(ref.rsplit("/", 1)[-1])
            self._waiting.append(ref)
        return self._refs[ref]

    def _find(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise self._error(f"$ref {ref!r} lies outside the schema", "Copy what it stands for into $defs.")
        found: Any = self._schema
        for part in ref[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and part.isdecimal() and int(part) < len(found):
                found = found[int(part)]
            elif isinstance(found, dict) and part in found:
                found = found[part]
            else:
                raise self._error(f"$ref {ref} leads nowhere", "Mend it; $anchor and $id are not followed.")
        return found

    # -- objects and arrays

    def _object(self, schema: Schema, name: str) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list) or not all(map(_is_text, required)):
            raise self._error("properties is no object, or required no list")
        more = schema.get("additionalProperties", not properties and not required)
        missing = [key for key in required if key not in properties]
        if missing and more is False:
            raise self._error(f"required names {missing[0]!r}, which is not among properties", "Describe it there.")
        known = properties | dict.fromkeys(missing, more)
        members = [
            (self._member(key, self._inside(f"properties/{key}", value, f"{name}-{key}"), name), key in required)
            for key, value in known.items()
        ]
        rest = "" if more is False else self._further(known, more, name)
        first, later = (f'({rest} ("," space {rest})*)?', f'("," space {rest})*') if rest else ("", "")
        for number in range(len(members) - 1, -1, -1):
            member, must = members[number]
            if not must:
                first = f"{member} {later} | {first}" if first else f"({member} {later})?"
                first = self._book.add(f"{name}-{number}-first", first)
                later = self._book.add(f"{name}-{number}-next", f'("," space {member})? {later}')
            else:
                first = self._book.add(f"{name}-{number}-first", f"{member} {later}")
                later = self._book.add(f"{name}-{number}-next", f'"," space {member} {later}')
        return f'"{{" space {first} "}}" space'

    def _member(self, key: str, value: str, name: str) -> str:
        return self._book.add(f"{name}-{key}-member", f'{json_literal(key)} space ":" space {value}')

    def _further(self, known: Mapping[str, Any], more: Any, name: str) -> str:
        """A property that is none of ``known``."""
        value = self._inside("additionalProperties", more, f"{name}-more")
        key = self._book.json("string") if not known else self._book.other_key(list(known), name)
        return self._book.add(f"{name}-further", f'{key} ":" space {value}')

    def _array(self, schema: Schema, name: str) -> str:
        least, most = self._bounds(schema, "minItems", "maxItems")
        items = schema.get("items", True)
        if "prefixItems" in schema:
            return self._tuple(schema["prefixItems"], items if "items" in schema else False, least, most, name)
        if most == 0 or items is False:
            if least:
                raise self._error("minItems asks for items that may not be there")
            return '"[" space "]" space'
        item = self._inside("items", items, f"{name}-item")
        more = f'("," space {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        inside = f"{item} {more}" if least else f"({item} {more})?"
        return f'"[" space {inside} "]" space'

    def _tuple(self, parts: Any, items: Any, least: int, most: int | None, name: str) -> str:
        if not isinstance(parts, list) or not parts:
            raise self._error("prefixItems is no list of schemas")
        if most is not None or least > len(parts):
            raise self._error("prefixItems with minItems or maxItems is not supported", "Leave those out.")
        found = [self._inside(f"prefixItems/{i}", part, f"{name}-{i}") for i, part in enumerate(parts)]
        text = ' "," space '.join(found)
        if items is not False:
            text += f' ("," space {self._inside("items", items, f"{name}-item")})*'
        return f'"[" space {text} "]" space'

    # -- texts and numbers

    def _string(self, schema: Schema, name: str) -> str:
        given = [key for key in ("pattern", "format") if key in schema]
        if given and len(schema.keys() & {*_OF_TYPE["string"]}) > 1:
            raise self._error(f"{given[0]} beside other limits of a text is not supported", "Keep one of them.")
        if "pattern" in schema:
            inside = pattern(str(schema["pattern"]))
        elif "format" in schema:
            self._book.json("hex")
            inside = _FORMATS.get(str(schema["format"]), "")
            if not inside:
                known = ", ".join(_FORMATS)
                raise self._error(f"the format {schema['format']} is not supported", f"Known are {known}.")
        else:
            least, most = self._bounds(schema, "minLength", "maxLength")
            inside = f"{self._book.json('char')}{{{least},{'' if most is None else most}}}"
        return rf'"\"" {inside} "\"" space'

    def _bounds(self, schema: Schema, low: str, high: str) -> tuple[int, int | None]:
        for key in (low, high):
            value = schema.get(key, 0)
            if not _is(value, "integer") or not 0 <= value <= MAX_REPEATS:
                raise self._error(f"{key} is {value!r}", f"It must be an integer from 0 to {MAX_REPEATS}.")
        least, most = int(schema.get(low, 0)), int(schema[high]) if high in schema else None
        if most is not None and most < least:
            raise self._error(f"{low} is more than {high}")
        return least, most

    def _integer(self, schema: Schema, name: str) -> str:
        bounds: dict[str, int] = {}
        for key in _OF_TYPE["integer"]:
            if key in schema:
                if not _is(schema[key], "integer") or abs(schema[key]) >= 10**_DIGITS:
                    raise self._error(
                        f"{key} is {schema[key]!r}", f"It must be an integer of {_DIGITS} digits at most."
                    )
                bounds[key] = int(schema[key])
        lows = [bounds["minimum"]] if "minimum" in bounds else []
        lows += [bounds["exclusiveMinimum"] + 1] if "exclusiveMinimum" in bounds else []
        highs = [bounds["maximum"]] if "maximum" in bounds else []
        highs += [bounds["exclusiveMaximum"] - 1] if "exclusiveMaximum" in bounds else []
        low, high = max(lows, default=None), min(highs, default=None)
        if low is not None and high is not None and low > high:
            raise self._error("no integer lies within its bounds")
        return f"{integers(low, high, _DIGITS)} space"

    def _number(self, schema: Schema, name: str) -> str:
        if {key for key in _OF_TYPE["number"] if key in schema} != {"minimum"} or schema["minimum"] != 0:
            raise self._error(
                "bounds of a number are not supported, other than minimum 0", "Make it an integer, or leave them out."
            )
        return self._book.json("positive")

    # -- names and mistakes

    def _inside(self, place: str, schema: Any, name: str) -> str:
        self._path.append(place)
        found = self._visit(schema, name)
        self._path.pop()
        return found

    def _only(self, schema: Schema, known: Sequence[str]) -> None:
        for key in schema:
            if key not in _NOTES and key not in known and not key.startswith("x-"):
                raise self._error(f"{key} is not supported here", "Leave it out, and check the answer for it.")

    def _error(self, what: str, hint: str = "Mend the schema.") -> UsageError:
        place = "/".join(("…", *self._path[-3:]) if len(self._path) > 4 else self._path)
        return UsageError(f"the JSON schema{f' at {place}' if place else ''}: {what}", hint=hint)


def _is(value: Any, kind: Any) -> bool:
    if kind == "integer":
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _PYTHON.get(str(kind), ()))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
