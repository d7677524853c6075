"""What the command line is made of: verbs with the options they share, one line for an error."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tnfdt.study.schema import UserError, refuse, shown

Arguments = argparse.Namespace


class Parser(argparse.ArgumentParser):
    """Reports what is wrong with the arguments in one line, as all errors are reported."""

    def error(self, message: str) -> NoReturn:
        self.exit(refuse(UserError(f"{message}; see {self.prog} --help")))


class Version(argparse.Action):
    """Print the version only when it is asked for: reading metadata takes time."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"tnfdt {version('tnfdt')}")
        parser.exit()


def add_verb(
    verbs: Any, name: str, run: Callable[[Arguments], Any], example: str, *, study: bool = True
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=run.__doc__, description=run.__doc__, epilog=f"example: tnfdt {name} {example}"
    )
    verb.set_defaults(verb=run)
    if study:
        verb.add_argument(
            "--study",
            default=os.environ.get("TNFDT_STUDY"),
            help="name or path of a study (default: $TNFDT_STUDY, else config/config.yaml)",
        )
    verb.add_argument(
        "--set",
        action="append",
        default=os.environ.get("TNFDT_SET", "").splitlines(),
        metavar="KEY=VALUE",
        help="a key of config/config.yaml (also: $TNFDT_SET, one pair a line)",
    )
    return verb


def add_stage(
    verbs: Any, name: str, run: Callable[[Arguments], Any], example: str
) -> argparse.ArgumentParser:
    verb = add_verb(verbs, name, run, example)
    verb.add_argument("--slice", help="refuse to run if the configuration has another digest")
    return verb


def number(text: str) -> int:
    """A count from the command line."""
    if not (text.isdecimal() and 0 < int(text[:8]) <= 10**6):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number, 1 or more")
    return int(text)


def device(text: str) -> str:
    """A device by the name that config/config.yaml would give it."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]{1,3})?", text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not auto, cpu, mps, cuda or cuda:1")
    return text


def figure(text: str) -> Path:
    """A figure to write, as PNG and as PDF."""
    path = Path(text)
    if path.suffix not in (".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not the name of a .png or a .pdf")
    return path


def lab(text: str) -> str:
    """The name of a lab, in tables and in a bundle's manifest."""
    if not (text.strip() and len(text) <= 64 and text.isprintable() and "|" not in text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a name of 1 to 64 letters")
    return text


def port(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text[:6]) < 2**16):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a port, 1 to 65535")
    return int(text)


def settings(pairs: list[str]) -> dict[str, Any]:
    """key=value pairs of --set; values are read as YAML, as Snakemake's --config does."""
    import yaml

    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UserError(f"--set {pair}: expected key=value, for example --set device=cpu")
        try:
            settings[key] = yaml.safe_load(value)
        except Exception:  # whatever the YAML library raises: the schema judges the text
            settings[key] = value
    return settings
