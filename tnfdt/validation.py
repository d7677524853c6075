"""Reading YAML strictly: closed JSON schemas, defaults from the schema, errors in one line."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_CREDENTIALS = re.compile(r"://[^/\s]*@")  # user:password of an address


class UserError(Exception):
    """Something the user can mend, told in one line; never with the password of an address."""

    def __str__(self) -> str:
        return _CREDENTIALS.sub("://***@", super().__str__())


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; a key given twice is an error, not a silent choice."""
    import yaml

    try:
        with path.open(encoding="utf-8") as file:  # of a stream, errors do not quote the line
            value = _strict_loader()(file).get_single_data()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
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
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if not isinstance(key, str):
                    raise ValueError(f"key {key!r} is not a text")
                if keys.count(key) > 1:
                    raise ValueError(f"key {key!r} stands twice")
            return super().construct_mapping(node, deep)

    return Loader


def validated(value: Any, schema_name: str, where: str) -> dict[str, Any]:
    """`value` with the schema's defaults filled in, or a UserError that names the key."""
    import jsonschema

    schema = _schema(schema_name)
    validator = jsonschema.Draft202012Validator(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if error is not None:
        raise UserError(_explain(error, where))
    filled: dict[str, Any] = _with_defaults(value, schema, schema)
    return filled


@cache
def _schema(name: str) -> dict[str, Any]:
    return read_yaml(ROOT / f"workflow/schemas/{name}.schema.yaml")


def _explain(error: Any, where: str) -> str:
    """One line from a jsonschema error: file, key, what is wrong, what is allowed."""
    key = ".".join(str(part) for part in error.absolute_path)
    place = f"{where}: {key}" if key else where
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        allowed = sorted(error.schema.get("properties", {}))
        unknown = sorted(set(error.instance) - set(allowed))
        return f"{place}: unknown key {', '.join(unknown)}; allowed: {', '.join(allowed)}"
    about = error.schema.get("description", "") if isinstance(error.schema, dict) else ""
    text = _CREDENTIALS.sub("://***@", error.message)  # before it is cut
    text = " ".join(text.split())[:300]
    return f"{place}: {text}" + (f" ({about})" if about else "")


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
