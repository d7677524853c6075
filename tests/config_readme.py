"""The tables of config/README.md, made from the schemas.

python -m tests.config_readme    writes them anew, after a schema has changed
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tnfdt.study.schema import ROOT, read_yaml

PAGE = ROOT / "config/README.md"
TABLES = ("config", "study")  # the schemas
HEAD = "| key | values | default | meaning |\n|---|---|---|---|\n"

Schema = dict[str, Any]


def rows(schema: Schema, root: Schema, key: str = "") -> Iterator[str]:
    """A row for each key of a schema, and of what is nested in it."""
    for name, item in {**schema.get("properties", {}), **_any_name(schema)}.items():
        entry = _resolved(item, root)
        path = f"{key}.{name}" if key else name
        yield _row(path, entry)
        yield from rows(entry, root, path)


def _any_name(schema: Schema) -> Schema:
    """What stands for names of the user's own, as in methods.NAME."""
    inner = schema.get("additionalProperties")
    return {"NAME": inner} if isinstance(inner, dict) else {}


def _resolved(schema: Schema, root: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    return {**root["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}


def _row(path: str, schema: Schema) -> str:
    default = f"`{_value(schema['default'])}`" if "default" in schema else "–"
    meaning = " ".join(schema.get("description", "").split())
    cells = (f"`{path}`", _values(schema), default, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value or '""'


def _values(schema: Schema) -> str:
    """What is allowed, as far as it fits into a cell."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum") or [schema["const"]]
        return ", ".join(f"`{_value(value)}`" for value in values)
    if "oneOf" in schema or "anyOf" in schema:
        return " or ".join(map(_values, schema.get("oneOf") or schema["anyOf"]))
    kinds = schema.get("type", "any")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    return f"{text}{_bounds(schema)}".replace("object", "keys").replace("array", "list")


def _bounds(schema: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return "".join(f", {sign} {schema[key]}" for key, sign in signs.items() if key in schema)


def table(name: str) -> str:
    schema = read_yaml(ROOT / f"workflow/schemas/{name}.schema.yaml")
    return HEAD + "".join(rows(schema, schema))


def filled(page: str) -> str:
    """The page with its tables, each between two comments, as the schemas have them now."""
    for name in TABLES:
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page, count = re.subn(pattern, lambda m, n=name: m[1] + table(n) + m[2], page, flags=re.S)
        assert count == 1, name
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
