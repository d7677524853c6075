"""Methods as data: what a method's switches mean, and which of them exclude each other.

A method's own value of a point that the paper leaves open counts before the study's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tnfdt.study.schema import UserError

VANILLA = "vanilla"  # the reference of every control, and the source of the audit's transfer
OWN = (
    "tn_backward", "blend_amount", "blend_series", "blend_augment", "ov_target", "stem",
    "random_start", "checkpoint", "attack_gradient",
)  # fmt: skip
"""The keys of `interpretation` that a method may set for itself."""

Switches = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Method:
    """The switches of a method; `interpretation` is the study's with the method's own values."""

    tensor_norm: bool
    blend: str | None
    target: str
    interpretation: dict[str, Any]
    label_smoothing: float | str | None = None
    mix: str | None = None
    mix_alpha: float = 1.0
    adversarial: dict[str, Any] | None = None
    own: tuple[str, ...] = ()  # keys of `interpretation` that the method sets for itself

    @property
    def backward(self) -> str:
        """The backward pass of tensor normalization."""
        return str(self.interpretation["tn_backward"])

    @property
    def is_control(self) -> bool:
        """Whether it asks what else could explain the effect, which needs vanilla beside it."""
        limited = self.blend and isinstance(self.interpretation["blend_amount"], int)
        return bool(self.label_smoothing or self.mix or self.adversarial or limited)

    def train_slice(self) -> dict[str, Any]:
        """What a training depends on of its method; controls only where they are used."""
        reading = self.interpretation
        blend = {
            "series": self.blend,
            "target": reading["ov_target"] if self.target == "dominant" else self.target,
            "amount": reading["blend_amount"],
            "augment": reading["blend_augment"],
        }
        always = {
            "stem": reading["stem"],
            "tensor_norm": self.backward if self.tensor_norm else None,
            "blend": blend if self.blend else None,
        }
        return always | dict(self._controls())

    @property
    def lacks_entropy(self) -> bool:
        """`matched` smoothing has the mean entropy of blends, which random factors leave open."""
        series = self.interpretation["blend_series"]
        return self.label_smoothing == "matched" and bool(series == "random")

    def attack_slice(self) -> dict[str, Any]:
        """What an attack depends on of its method; the exact gradient only where it is another."""
        reading = self.interpretation
        exact = self.tensor_norm and reading["attack_gradient"] == "exact" != self.backward
        start = {"random_start": reading["random_start"]}
        return start | ({"gradient": "exact"} if exact else {})

    def _controls(self) -> Iterator[tuple[str, Any]]:
        reading = self.interpretation
        if self.label_smoothing == "matched":
            like = {"series": reading["blend_series"], "amount": reading["blend_amount"]}
            yield "label_smoothing", {"matched": like}
        elif self.label_smoothing is not None:
            yield "label_smoothing", self.label_smoothing
        if self.mix:
            yield "mix", {"kind": self.mix, "alpha": self.mix_alpha}
        if self.adversarial:
            yield "adversarial", self.adversarial
        if reading["checkpoint"] != "last":
            yield "checkpoint", reading["checkpoint"]


def make_method(switches: Switches, interpretation: Mapping[str, Any], where: str) -> Method:
    """A method from its entry in a study file; `where` names the entry in messages."""
    own = {key: switches[key] for key in OWN if key in switches}
    reading = {**interpretation, **own}
    _check_target(switches, where)
    _check_exclusions(switches, reading, where)
    _check_effects(switches, own, where)
    named = switches["blend"] or None
    smoothing, adversarial = switches["label_smoothing"], switches["adversarial"]
    return Method(
        tensor_norm=switches["tensor_norm"],
        blend=reading["blend_series"] if named is True else named,
        target=switches["target"],
        interpretation=reading,
        label_smoothing=smoothing if isinstance(smoothing, str | None) else float(smoothing),
        mix=switches["mix"],
        mix_alpha=float(switches["mix_alpha"]),
        adversarial=adversarial and {**adversarial, "epsilon": float(adversarial["epsilon"])},
        own=tuple(own),
    )


def _check_target(switches: Switches, where: str) -> None:
    if bool(switches["blend"]) != (switches["target"] != "label"):
        raise UserError(
            f"{where}: `blend` and `target` go together: "
            "a blend is trained on target dominant or distribution, a single image on label"
        )


def _check_exclusions(switches: Switches, reading: Switches, where: str) -> None:
    """At most one of the switches that make a soft target; `matched` needs a closed form."""
    chosen = [key for key in ("blend", "mix", "label_smoothing") if switches[key]]
    if len(chosen) > 1:
        raise UserError(
            f"{where}: `{chosen[0]}` and `{chosen[1]}` exclude each other, as both make the "
            "target; keep one of them"
        )
    if switches["label_smoothing"] == "matched" and reading["blend_series"] == "random":
        raise UserError(
            f"{where}: `label_smoothing: matched` has no closed form for blend_series random; "
            "write a number between 0 and 1"
        )


def _check_effects(switches: Switches, own: Switches, where: str) -> None:
    """A value of the method's own that changes nothing is a mistake of the one who wrote it."""
    matched = switches["label_smoothing"] == "matched"
    needs = {
        "tn_backward": (switches["tensor_norm"], "tensor_norm: true"),
        "blend_amount": (switches["blend"] or matched, "blend"),
        "blend_series": (switches["blend"] is True or matched, "blend: true"),
        "blend_augment": (switches["blend"], "blend"),
        "ov_target": (switches["target"] == "dominant", "target: dominant"),
        "attack_gradient": (switches["tensor_norm"], "tensor_norm: true"),
    }
    for key in own:
        used, needed = needs.get(key, (True, ""))
        if not used:
            raise UserError(f"{where}: `{key}` has no effect without `{needed}`; add it")


def check_references(
    blocks: Mapping[str, Switches], methods: Mapping[str, Method], where: str
) -> None:
    """Every control has vanilla beside it, on the same dataset and network."""
    there = {
        (dataset, model)
        for block in blocks.values()
        if VANILLA in block["methods"]
        for dataset in block["datasets"]
        for model in block["models"]
    }
    for table, block in blocks.items():
        controls = [name for name in block["methods"] if methods[name].is_control]
        wanted = {(dataset, model) for dataset in block["datasets"] for model in block["models"]}
        if controls and wanted - there:
            dataset, model = min(wanted - there)
            raise UserError(
                f"{where}: grid.{table}.methods: {controls[0]} is a control and needs {VANILLA} "
                f"beside it on {dataset}, {model}; add {VANILLA} to the methods"
            )
