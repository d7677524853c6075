"""Studies and machine settings: completed from the schemas, refused in one line."""

import copy

import pytest

from tnfdt.study.machine import load_machine, machine_from_dict
from tnfdt.study.paths import Cell, format_epsilon
from tnfdt.study.schema import ROOT, UserError, read_yaml, validated
from tnfdt.study.study import digest, load_study, parse_cell, study_from_dict

MACHINE = load_machine()


MATCHED = {"label_smoothing": "matched"}
GRID = {"datasets": ["digits"], "models": ["wrn10_1"], "methods": ["smooth"]}
CONTROLS = {
    "smooth": MATCHED,
    "mixup": {"mix": "mixup", "mix_alpha": 1},
    "cutmix": {"mix": "cutmix"},
    "fdt2": {"blend": "harmonic", "target": "distribution", "blend_amount": 2},
    "pgd_at": {"adversarial": {"epsilon": 0.03137, "steps": 3}},
}


def demo():
    return read_yaml(ROOT / "config/studies/demo.yaml")


def test_the_papers_grid_is_72_trainings_and_288_attacks():
    study = load_study("paper")
    assert len(study.cells) == len(set(study.cells)) == 72
    assert len(study.cells) * len(study.attack.epsilons) == 288
    assert len(study.grid["table1"]) == 60
    assert len(study.grid["table2"]) == 12


def test_the_papers_recipe():
    study = load_study("paper")
    recipe = study.training
    assert (recipe.lr, recipe.momentum, recipe.weight_decay) == (0.1, 0.9, 0.0005)
    assert (recipe.batch_size, recipe.epochs, recipe.lr_drop_every) == (100, 150, 30)
    assert (study.attack.steps, study.attack.rel_stepsize) == (40, 0.01 / 0.3)
    assert study.attack.epsilons == (0.1, 0.01, 0.001, 0.0001)
    assert study.datasets["c10"].augment.shift == 4
    assert study.datasets["svhn"].augment.shift == 0
    assert not study.datasets["svhn"].augment.flip
    assert {entry.mean for entry in study.datasets.values()} == {(122, 117, 104)}


def test_paper_yaml_says_what_the_schema_defaults_are():
    """The paper's values stand in the schema as defaults and in paper.yaml for the reader."""
    written = read_yaml(ROOT / "config/studies/paper.yaml")
    bare = {key: written[key] for key in ("grid", "seeds", "methods", "datasets")}
    completed, defaults = validated(written, "study", ""), validated(bare, "study", "")
    for part in ("training", "attack", "interpretation", "limit"):
        assert completed[part] == defaults[part]


@pytest.mark.parametrize("name", ["demo", "mini", "paper"])
def test_every_study_has_the_papers_five_methods(name):
    switches = {
        key: (m.tensor_norm, m.blend, m.target) for key, m in load_study(name).methods.items()
    }
    assert switches == {
        "vanilla": (False, None, "label"),
        "ov": (False, "harmonic", "dominant"),
        "fdt": (False, "harmonic", "distribution"),
        "tn": (True, None, "label"),
        "tn_fdt": (True, "harmonic", "distribution"),
    }


def changed(path, value):
    """The demo study with the value at a dotted path replaced (or a key added)."""
    study = copy.deepcopy(demo())
    study["methods"] |= copy.deepcopy(CONTROLS)
    *parents, last = path.split(".")
    place = study
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return study


BAD_STUDIES = [
    ("colour", 1, ["colour", "unknown key", "training"]),
    ("training.epoch", 1, ["training", "epoch", "epochs"]),
    ("training.lr", -1, ["training.lr", "-1"]),
    ("training.lr", "fast", ["training.lr", "fast"]),
    ("training.epochs", 0, ["training.epochs"]),
    ("training.optimizer", "adam", ["training.optimizer", "sgd"]),
    ("attack.epsilons", [0.1, -0.01], ["attack.epsilons.1", "-0.01"]),
    ("attack.epsilons", [0.1, 0.1], ["attack.epsilons"]),
    ("attack.epsilons", ["1e-4"], ["attack.epsilons.0", "1e-4"]),
    ("attack.epsilons", [], ["attack.epsilons"]),
    ("seeds", [0, 1, 0], ["seeds"]),
    ("seeds", [], ["seeds"]),
    ("seeds", [-1], ["seeds.0"]),
    ("seeds", [1.5], ["seeds.0"]),
    ("grid", {}, ["grid"]),
    ("grid.table1.methods", [], ["grid.table1.methods"]),
    ("grid.table1.methods", ["vanilla", "tnx"], ["grid.table1.methods", "tnx", "tn_fdt"]),
    ("grid.table1.datasets", ["mnist"], ["grid.table1.datasets", "mnist", "digits"]),
    ("grid.table1.models", ["a/b"], ["grid.table1.models.0", "a/b"]),
    ("grid.table1.models", ["$(reboot)"], ["grid.table1.models.0"]),
    ("grid.table3", {}, ["grid.table3", "'datasets' is a required property"]),
    ("grid.a-b", GRID, ["grid", "'a-b'", "A table's name"]),
    ("grid.claims", GRID, ["grid.claims", "another file"]),
    ("methods.tn.backward", "exact", ["methods.tn", "unknown key backward", "tn_backward"]),
    ("methods.fdt.mix", "mixup", ["methods.fdt", "`blend` and `mix` exclude each other"]),
    ("methods.fdt.label_smoothing", 0.1, ["methods.fdt", "`blend` and `label_smoothing`"]),
    ("methods.x", {"mix": "cutmix", "label_smoothing": 0.1}, ["methods.x", "`mix` and `label"]),
    ("methods.x", {"mix": "mixup", "mix_alpha": 0}, ["methods.x.mix_alpha", "0"]),
    ("methods.x", {"mix": "mixup", "mix_alpha": -1}, ["methods.x.mix_alpha", "-1"]),
    ("methods.x", {"mix": "blur"}, ["methods.x.mix", "mixup"]),
    ("methods.x", {"label_smoothing": 0}, ["methods.x.label_smoothing"]),
    ("methods.x", {"label_smoothing": 1}, ["methods.x.label_smoothing"]),
    ("methods.x", {"label_smoothing": "fdt"}, ["methods.x.label_smoothing"]),
    ("methods.x", MATCHED | {"blend_series": "random"}, ["methods.x", "no closed form"]),
    ("methods.x", {"adversarial": {"epsilon": 0, "steps": 3}}, ["methods.x.adversarial.epsilon"]),
    ("methods.x", {"adversarial": {"epsilon": -1, "steps": 3}}, ["methods.x.adversarial.epsilon"]),
    ("methods.x", {"adversarial": {"epsilon": 0.1, "steps": 0}}, ["methods.x.adversarial.steps"]),
    ("methods.x", {"adversarial": {"epsilon": 0.1}}, ["methods.x.adversarial", "steps"]),
    ("methods.fdt.blend_amount", 0, ["methods.fdt.blend_amount"]),
    ("methods.fdt.blend_series", "uniform", ["methods.fdt", "`blend_series`", "`blend: true`"]),
    ("methods.vanilla.blend_amount", 2, ["methods.vanilla", "`blend_amount`", "`blend`"]),
    ("methods.vanilla.tn_backward", "exact", ["methods.vanilla", "tensor_norm: true"]),
    ("grid.table1.methods", ["fdt", "fdt2"], ["grid.table1.methods", "fdt2", "needs vanilla"]),
    ("grid.other", GRID | {"models": ["wrn16_1"]}, ["grid.other.methods", "smooth", "wrn16_1"]),
    ("audit.autoattack", {"images": 0}, ["audit.autoattack.images"]),
    ("audit.autoattack", {"epsilons": [8 / 255]}, ["audit.autoattack.epsilons", "0.0313725"]),
    ("methods.tn.tensor_norm", "yes", ["methods.tn.tensor_norm"]),
    ("methods.fdt.blend", "fibonacci", ["methods.fdt.blend", "harmonic"]),
    ("methods.fdt.target", "label", ["methods.fdt", "blend", "target"]),
    ("methods.vanilla", {"target": "dominant"}, ["methods.vanilla", "blend"]),
    ("interpretation.tn_backward", "true", ["interpretation.tn_backward", "exact"]),
    ("interpretation.blend_series", "geometric", ["interpretation.blend_series", "blend: true"]),
    ("limit.train", 0, ["limit.train"]),
    ("audit.seeds", [7], ["audit.seeds", "7"]),
    ("datasets.digits.mean", [1, 2], ["datasets.digits.mean"]),
    ("datasets.digits.augment.shift", -1, ["datasets.digits.augment.shift"]),
]


@pytest.mark.parametrize(("path", "value", "words"), BAD_STUDIES, ids=lambda x: str(x)[:40])
def test_bad_study_is_one_line_with_file_and_key(path, value, words):
    with pytest.raises(UserError) as caught:
        study_from_dict(changed(path, value), name="mine", where="mine.yaml")
    message = str(caught.value)
    assert message.startswith("mine.yaml: ")
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("name", ["../evil", "a b", "", "mlflow-artifacts"])
def test_study_names_are_safe_folders(name):
    with pytest.raises(UserError):
        study_from_dict(demo(), name=name, where="x.yaml")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1\n- 2", "mapping"),
        ("a: 1\na: 2", "'a' is given twice"),
        ("1: 2", "not a text"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("\x00", "not valid YAML"),
    ],
)
def test_bad_yaml_is_one_line(tmp_path, text, word):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=word) as caught:
        load_study(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["nope", "nope.yaml", "", "."])
def test_a_study_that_is_not_there_names_those_that_are(value):
    with pytest.raises(UserError, match="demo, fmnist, mini"):
        load_study(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", "gpu"),
        ("precision", "fp8"),
        ("threads", 0),
        ("gpu_slots", "two"),
        ("colour", "red"),
        ("study", 3),
    ],
)
def test_bad_machine_settings_name_the_key(key, value):
    with pytest.raises(UserError, match=key):
        machine_from_dict({key: value})


def test_slices_are_narrow():
    """A change of one key changes the slices of those cells and stages that depend on it."""
    before = study_from_dict(demo(), name="demo", where="")

    def affected(path, value):
        after = study_from_dict(changed(path, value), name="demo", where="")
        methods = [
            cell.method
            for cell in before.cells
            if cell.seed == 0
            and before.train_slice(cell, MACHINE) != after.train_slice(cell, MACHINE)
        ]
        attack = before.attack_slice(0.1) != after.attack_slice(0.1)
        return methods, attack, before.audit_slice() != after.audit_slice()

    everything = ["vanilla", "ov", "fdt", "tn", "tn_fdt"]
    assert affected("training.lr", 0.2) == (everything, False, False)
    assert affected("interpretation.tn_backward", "exact") == (["tn", "tn_fdt"], False, False)
    assert affected("interpretation.blend_amount", "all") == (["ov", "fdt", "tn_fdt"], False, False)
    assert affected("interpretation.random_start", True) == ([], True, True)
    assert affected("attack.steps", 20) == ([], True, True)
    assert affected("attack.precision", "tf32") == ([], True, True)
    assert affected("attack.epsilons", [0.1, 0.5]) == ([], False, True)
    assert affected("description", "other") == ([], False, False)
    assert affected("audit.restarts", 9) == ([], False, True)
    assert affected("audit.black_box", 9) == ([], False, True)


def test_a_method_may_override_the_backward_pass():
    study = study_from_dict(changed("methods.tn.tn_backward", "exact"), name="x", where="")
    slices = {cell.method: study.train_slice(cell, MACHINE)["tensor_norm"] for cell in study.cells}
    assert slices["tn"] == "exact"
    assert slices["tn_fdt"] == "paper"
    assert slices["vanilla"] is None


def test_controls_stand_in_the_slice_only_where_they_are_used():
    """The five methods of the paper keep their slices, and with them their results."""
    study = study_from_dict(changed("grid.more", GRID | {"methods": ["vanilla", *CONTROLS]}),
                            name="x", where="")  # fmt: skip
    slices = {cell.method: study.train_slice(cell, MACHINE) for cell in study.cells}
    plain = slices["vanilla"].keys()
    extra = {name: {key: made[key] for key in made.keys() - plain} for name, made in slices.items()}
    assert extra == {
        **{key: {} for key in ("vanilla", "ov", "fdt", "tn", "tn_fdt", "fdt2")},
        "smooth": {"label_smoothing": {"matched": {"series": "harmonic", "amount": "uniform"}}},
        "mixup": {"mix": {"kind": "mixup", "alpha": 1.0}},
        "cutmix": {"mix": {"kind": "cutmix", "alpha": 1.0}},
        "pgd_at": {"adversarial": {"epsilon": 0.03137, "steps": 3}},
    }
    assert slices["fdt"]["blend"]["amount"] == "uniform"
    assert slices["fdt2"]["blend"] == slices["fdt"]["blend"] | {"amount": 2}
    assert not {"autoattack"} & study.audit_slice().keys()
    for name in ("vanilla", "smooth", "mixup", "cutmix", "pgd_at"):
        assert slices[name] == slices["vanilla"] | extra[name]


def test_controls_combine_with_tensor_norm():
    for name, switches in CONTROLS.items():
        raw = changed(f"methods.{name}", {**switches, "tensor_norm": True})
        study = study_from_dict(raw, name="x", where="")
        assert study.methods[name].train_slice()["tensor_norm"] == "paper"


OWN_VALUES = {
    "tn_backward": ("tn", "exact"),
    "blend_amount": ("fdt", "all"),
    "blend_augment": ("ov", "after"),
    "stem": ("vanilla", "imagenet"),
    "random_start": ("tn_fdt", True),
}


@pytest.mark.parametrize("key", OWN_VALUES)
def test_a_methods_own_reading_is_the_studys_for_it_alone(key):
    """Its slices are those of a study that reads the paper so, the other methods' are not."""
    method, value = OWN_VALUES[key]
    plain = study_from_dict(demo(), name="x", where="")
    own = study_from_dict(changed(f"methods.{method}.{key}", value), name="x", where="")
    whole = study_from_dict(changed(f"interpretation.{key}", value), name="x", where="")
    for cell in plain.cells:
        expected = whole if cell.method == method else plain
        assert own.train_slice(cell, MACHINE) == expected.train_slice(cell, MACHINE)
        assert own.attack_slice(0.1, cell.method) == expected.attack_slice(0.1, cell.method)
        assert own.audit_slice(cell.method) == expected.audit_slice(cell.method)
        assert own.reading(cell.method) == expected.interpretation
    assert any(
        own.train_slice(cell, MACHINE) != plain.train_slice(cell, MACHINE)
        or own.attack_slice(0.1, cell.method) != plain.attack_slice(0.1, cell.method)
        for cell in plain.cells
    )


def test_a_grid_may_have_tables_of_any_name_with_a_caption():
    block = GRID | {"methods": ["vanilla", "smooth"], "caption": "What else?"}
    study = study_from_dict(changed("grid.what_else", block), name="x", where="")
    assert study.captions == {"table1": "", "what_else": "What else?"}
    assert {cell.method for cell in study.grid["what_else"]} == {"vanilla", "smooth"}


@pytest.mark.parametrize("name", ["summary", "labs", "claims"])
def test_a_table_that_has_the_name_of_another_page_is_refused(name):
    with pytest.raises(UserError, match=name):
        study_from_dict(changed(f"grid.{name}", GRID), name="x", where="")


def test_autoattack_has_epsilons_beside_the_attacks():
    study = study_from_dict(changed("audit.autoattack", {"images": 8}), name="x", where="")
    asked = {"images": 8, "epsilons": [0.03137]}
    epsilons = [0.1, 0.01, 0.001, 0.0001, 0.03137]
    plain = study_from_dict(demo(), name="x", where="").audit_slice()
    assert study.audit_slice() == plain | {"epsilons": epsilons, "autoattack": asked}
    assert study.attack.epsilons == (0.1, 0.01, 0.001, 0.0001)


def test_digest_tells_slices_apart():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.5})


def test_epsilons_in_file_names():
    assert [format_epsilon(e) for e in (0.1, 0.01, 0.001, 0.0001)] == [
        "0.1",
        "0.01",
        "0.001",
        "0.0001",
    ]


def test_cells_have_paths_and_parse_back():
    study = load_study("demo")
    assert parse_cell("digits/wrn10_1/tn/seed0", study) == Cell("digits", "wrn10_1", "tn", 0)
    with pytest.raises(UserError, match="not in study demo"):
        parse_cell("digits/wrn10_1/tn/seed9", study)


def test_samples_are_taken_where_they_exist(tmp_path):
    study = load_study("mini")
    machine = load_machine(overrides={"sample_dir": str(tmp_path)})
    assert study.dataset_path("c10", machine) is None
    assert study.sample_positions("c10", machine).name == "c10_sample.json"
    assert study.data_slice("c10", machine)["positions"] == "c10_sample.json"
    (tmp_path / "c10_sample.npz").touch()
    assert study.dataset_path("c10", machine) == str(tmp_path / "c10_sample.npz")
    assert study.sample_positions("c10", machine) is None
    assert "positions" not in study.data_slice("c10", machine)
    assert study.sample_positions("fmnist", machine) is None
