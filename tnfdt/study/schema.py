"""Reading YAML strictly: closed JSON schemas, defaults from the schema, errors in one line."""

from __future__ import annotations

import math
import re
import reprlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

# The checkout, by one name whatever links lead to it: config/ and workflow/ are not in the wheel.
ROOT = Path(__file__).resolve().parents[2]
EXIT_USER_ERROR = 2
_LONGEST = 2000  # letters of a message
_MOST = 20_000  # values of a file, aliases written out: the largest study has a few hundred
_CREDENTIALS = re.compile(r"://\S*@")  # user:password of an address


class UserError(Exception):
    """Something the user can fix, in one line; the password of an address is never shown."""

    def __str__(self) -> str:
        text = _CREDENTIALS.sub("://***@", super().__str__())
        if len(text) > _LONGEST:  # what is wrong comes first, what to do last
            text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
        return "".join(letter if letter.isprintable() else " " for letter in text)


def refuse(error: UserError) -> int:
    """Print the one line; returns the exit code."""
    print(f"tnfdt: {error}", file=sys.stderr)
    return EXIT_USER_ERROR


def require_checkout() -> None:
    """Raise unless this package lies in a checkout, with the settings and schemas it reads."""
    if not (ROOT / "workflow/schemas").is_dir():
        raise UserError(
            "this command needs a checkout of the project, whose config/ and workflow/ are not in "
            "the installed package; clone it and run `pip install -e '.[harness]'` there"
        )


def shown(value: Any) -> str:
    """A value for a message: without credentials, shortened where it is long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = 200
    return short.repr(_masked(value))


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return _CREDENTIALS.sub("://***@", value)
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return {key: _masked(item) for key, item in value.items()} if isinstance(value, dict) else value


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; a key given twice is an error, not a silent choice."""
    try:
        with path.open(encoding="utf-8") as file:  # of a stream, errors do not quote the line
            value = _strict_loader()(file).get_single_data()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give the path of a .yaml file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except Exception as error:  # whatever a wrong tag or value makes the YAML library raise
        text = " ".join(str(error).split())
        raise UserError(f"{path} is not valid YAML: {text}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a mapping of keys to values")
    return value


@cache
def _strict_loader() -> type[Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key in (self.construct_object(key, deep=True) for key, _ in node.value):
                if not isinstance(key, str):
                    raise ValueError(f"key {shown(key)} is not a text")
                if key in seen:
                    raise ValueError(f"key {shown(key)} is given twice")
                seen.add(key)
            return super().construct_mapping(node, deep)

    return Loader


def validated(value: Any, schema_name: str, where: str) -> dict[str, Any]:
    """`value` with the schema's defaults filled in, or a UserError that names the key."""
    import jsonschema

    schema = _schema(schema_name)
    try:
        if _size(value, {}) > _MOST:
            raise UserError(f"{where}: more than {_MOST:,} values, aliases counted; write fewer")
        error = jsonschema.exceptions.best_match(_validator()(schema).iter_errors(value))
    except (RecursionError, ValueError):  # of the comparison, or of the text of a message
        raise UserError(
            f"{where}: a value holds itself or has thousands of digits; write another"
        ) from None
    if error is not None:
        raise UserError(_explain(error, where))
    filled: dict[str, Any] = _with_defaults(value, schema, schema)
    return filled


def _size(value: Any, known: dict[int, int]) -> int:
    """How many values there are, a shared one counted wherever it appears, as a check sees them."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if id(value) not in known:
        known[id(value)] = 1 + sum(_size(item, known) for item in inner)
    return known[id(value)]


@cache
def _validator() -> Any:
    """JSON Schema as it is meant here: a number is finite, and 2.0 is no count."""
    from jsonschema import Draft202012Validator, validators

    def is_integer(checker: Any, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    def is_number(checker: Any, value: Any) -> bool:
        return is_integer(checker, value) or (isinstance(value, float) and math.isfinite(value))

    types = {"integer": is_integer, "number": is_number}
    checker = Draft202012Validator.TYPE_CHECKER.redefine_many(types)
    extend: Any = validators.extend
    return extend(Draft202012Validator, type_checker=checker)


@cache
def _schema(name: str) -> dict[str, Any]:
    return read_yaml(ROOT / f"workflow/schemas/{name}.schema.yaml")


def _explain(error: Any, where: str) -> str:
    """One line from a jsonschema error: file, key, what is wrong, what is allowed."""
    key = ".".join(str(part) for part in error.absolute_path)
    place = f"{where}: {key}" if key else where
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = sorted(error.schema.get("properties", {}))
        unknown = sorted(str(key) for key in error.instance if key not in allowed)
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        named = ", ".join(unknown[:5]) + more
        return f"{place}: unknown key {named}; allowed: {', '.join(allowed)}"
    about = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    text = _CREDENTIALS.sub("://***@", error.message)  # before it is cut
    if error.validator in ("pattern", "maxLength"):  # an expression helps nobody
        text = f"{shown(error.instance)} is not allowed"
    return f"{place}: {' '.join(text.split())[:300]}" + (f" ({about})" if about else "")


def _with_defaults(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """A copy of `value` in which every key that the schema knows has its value or default."""
    if "$ref" in schema:
        schema = {**root["$defs"][schema["$ref"].rsplit("/", 1)[1]], **schema}
    if not isinstance(value, dict):
        return value
    filled = {}
    for key, item in {**_defaults(schema), **value}.items():
        inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        filled[key] = _with_defaults(item, inner, root) if isinstance(inner, dict) else item
    return filled


def _defaults(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {key: item["default"] for key, item in properties.items() if "default" in item}
