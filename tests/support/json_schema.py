"""Whether a JSON value fits a schema: as much of JSON Schema as the tests ask for."""

from __future__ import annotations

import re
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def fits(value: Any, schema: Any, root: Any) -> bool:
    """``root`` is what references start from; further properties are allowed only where the schema says so."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        found = root
        for part in schema["$ref"].split("/")[1:]:
            found = found[part]
        return fits(value, found, root)
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "anyOf" in schema and not any(fits(value, one, root) for one in schema["anyOf"]):
        return False
    kinds = schema.get("type", list(TYPES))
    if not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if isinstance(value, dict):
        return _object(value, schema, root)
    if isinstance(value, list):
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        return least <= len(value) <= most and all(fits(one, schema.get("items", True), root) for one in value)
    if isinstance(value, str):
        fitting = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return bool(fitting and re.search(schema.get("pattern", ""), value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _object(value: dict[str, Any], schema: Any, root: Any) -> bool:
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", not known)
    return all(key in value for key in schema.get("required", ())) and all(
        fits(one, known.get(key, more), root) for key, one in value.items()
    )
