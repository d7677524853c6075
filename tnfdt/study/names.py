"""How datasets, models, methods, attacks and times are written, and how methods are drawn."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

_DATASETS = {"c10": "C10", "c100": "C100", "fmnist": "F-MNIST", "svhn": "SVHN", "digits": "Digits"}


class Appearance(NamedTuple):
    """How a method is written and drawn."""

    words: tuple[str, ...]
    colour: str
    marker: str


METHODS = {  # colours of Okabe and Ito, distinct to every kind of colour vision
    "vanilla": Appearance((), "#000000", "o"),
    "ov": Appearance(("OV",), "#E69F00", "s"),
    "fdt": Appearance(("FDT",), "#0072B2", "^"),
    "tn": Appearance(("TN",), "#009E73", "D"),
    "tn_fdt": Appearance(("TN", "FDT"), "#D55E00", "v"),
    "smooth": Appearance(("label smoothing",), "#56B4E9", "P"),
    "mixup": Appearance(("mixup",), "#CC79A7", "X"),
    "cutmix": Appearance(("CutMix",), "#882255", "*"),
    "fdt2": Appearance(("FDT of two",), "#F0E442", "<"),
    "pgd_at": Appearance(("PGD training",), "#999999", "h"),
}
AUDIT_ATTACKS = {
    "paper_eq7": "Eq. 7",
    "paper_last": "Last iterate",
    "paper": "Worst iterate",
    "exact": "Exact",
    "restarts": "Restarts",
    "steps_x2": "2× steps",
    "transfer": "Transfer",
    "noise": "Noise",
    "black_box": "Black box",
    "autoattack": "AutoAttack",
    "worst_case": "Worst case",
}
_MODELS = (
    (re.compile(r"resnet(\d+)"), r"ResNet-\1"),
    (re.compile(r"wrn(\d+)_(\d+)"), r"WideResNet-\1-\2"),
)
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def dataset_name(dataset: str) -> str:
    return _DATASETS.get(dataset, dataset)


def model_name(model: str) -> str:
    """resnet34 is ResNet-34, wrn28_10 is WideResNet-28-10."""
    for pattern, name in _MODELS:
        if pattern.fullmatch(model):
            return pattern.sub(name, model)
    return model


def method_name(method: str) -> str:
    """The method alone, as in a legend: vanilla, OV, TN & FDT."""
    return " & ".join(METHODS[method].words if method in METHODS else ()) or method


def row_name(model: str, method: str, table: str = "table1") -> str:
    """Model and method as the paper's rows have them; its Table 2 writes FDT before TN."""
    parts = METHODS[method].words if method in METHODS else (method,)
    ordered = reversed(parts) if table == "table2" else parts
    return " & ".join([model_name(model), *ordered])


def epsilon_name(epsilon: float) -> str:
    """ε = 10⁻¹ for powers of ten, 8/255 for few steps of a pixel, else the number itself."""
    exponent = round(math.log10(epsilon))
    if math.isclose(epsilon, 10.0**exponent):
        return "ε=10" + str(exponent).translate(_SUPERSCRIPT)
    pixels = round(255 * epsilon)
    if pixels <= 16 and math.isclose(255 * epsilon, pixels, rel_tol=1e-3):
        return f"ε={pixels}/255"
    return f"ε={epsilon:g}"


def duration(seconds: float) -> str:
    """1.5 s, 45 s, 12 min, 3.5 h, 2.1 days."""
    for size, unit, digits in ((86400, "days", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= 2 * size or (unit == "h" and seconds >= size):
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 or not seconds else f"{seconds:.2g} s"
