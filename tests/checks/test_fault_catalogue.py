"""The catalogue has an actionable entry for every fault that can be raised."""

import dataclasses
import importlib
import re
import shlex
import typing
from types import SimpleNamespace

import pytest

from checks.framework.plugin import further_nodes
from checks.profiles.loader import Profile
from checks.profiles.yaml_schema import read_yaml
from cli.listing import declared_checks
from cli.usage import run_parser
from reports.record import Finding, Run
from seatrial.faults.advice import FAULTS, explain
from seatrial.faults.catalogue import FOLDER, fault_catalogue, read_faults
from seatrial.faults.variants import fill, right_arguments, told_of
from tests.table import table

TESTS = ("checks", "jobs")


def declared(root):
    """Fault ids named by the checks' markers."""
    modules = [importlib.import_module(f"checks.{path.stem}") for path in (root / "checks").glob("test_*.py")]
    marks = [mark for module in modules for each in vars(module).values() for mark in getattr(each, "pytestmark", ())]
    return {fault for mark in marks if mark.name == "check" for fault in mark.kwargs.get("faults", ())}


def test_every_fault_of_a_check_is_in_the_catalogue(root):
    """A check cannot name a fault that the report could not explain."""
    assert declared(root)
    assert not declared(root) - set(FAULTS)


def test_every_fault_in_the_code_is_in_the_catalogue_and_declared(root):
    """Fault ids in the rules match the markers, and those of the launcher have entries."""
    areas = "|".join(sorted({i.partition(".")[0] for i in FAULTS}))
    word = re.compile(rf"[\"']((?:{areas})\.[a-z0-9-]+)[\"']")
    checks = {p.name: set(word.findall(p.read_text())) for p in (root / "checks").rglob("*.py")}
    ids = {
        m
        for p in (root / "checks").glob("test_*.py")
        for m in re.findall(r'mark\.check\(\s*"([a-z0-9.-]+)"', p.read_text())
    }
    named = (
        set().union(*checks.values())
        - ids
        - {"nccl.conf", "gpu.resource", "gpu.per_node", "sweep.job", "sweep.end", "sweep.json"}
    )
    assert not named - set(FAULTS)
    launcher = {m for p in (root / "jobs").rglob("*.py") for m in word.findall(p.read_text())}
    faults = {
        m for m in launcher if m.partition(".")[0] in ("job", "image", "container", "quota", "volume", "limitrange")
    }
    assert faults
    assert not faults - set(FAULTS)


def test_every_fault_that_a_part_of_the_cluster_shows_is_declared(root):
    """A text in the catalogue may end a trial, so a check must declare its fault."""
    told = {fault for fault, entry in FAULTS.items() for each in entry.variants if each.who}
    assert len(told) > 30
    assert not told - declared(root) - OF_OTHERS


OF_OTHERS = {"job.disrupted", "namespace.terminating", "lab.machine"}
"""Faults of several checks: an interruption, a namespace being deleted, and this machine."""


def test_every_declared_fault_has_a_failing_case(root):
    """A test of the rules raises each fault that a check declares."""
    texts = "".join(path.read_text() for folder in TESTS for path in (root / "tests" / folder).glob("test_*.py"))
    assert not {f for f in declared(root) if f'"{f}"' not in texts}


@table("fault", FAULTS.values(), ids=lambda f: f.id)
def test_every_entry_can_be_acted_on(fault):
    """Each entry has a stable id, a confirming command, a remedy and a source."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)+", fault.id)
    for text in (fault.title, fault.meaning, fault.confirm, fault.remedy, fault.source, fault.layer):
        assert isinstance(text, str)
        assert text.strip()
    assert isinstance(fault.look, str)
    assert not fault.title.endswith(".")
    assert not re.search(r"\bTODO\b|\?\?", fault.meaning + fault.remedy)
    assert len(fault.meaning) > 12


SAID = ("repeat", "read", "compare", "the")
"""First words of a confirmation that is not a command: it names an observation, or a change for a second run."""
COMMANDS = re.compile(r"(?:\w+=\S+ )*[a-zA-Z][\w.-]*(?:\(\))?[,;]?$")


def commands_of(fault):
    """Return the confirmations of a fault: for a trial, for any user's job, and of its alternatives."""
    own = dict.fromkeys(told_of(fault.confirm, trial=trial) for trial in (True, False))
    return [*own, *(each.confirm for each in fault.alternatives)]


@table("fault", FAULTS.values(), ids=lambda f: f.id)
def test_a_confirm_can_be_copied_and_each_cause_has_one_of_its_own(fault):
    """A confirmation begins with a command or an instruction, a shell can parse its quotes, and it is unique."""
    for text in commands_of(fault):
        first = text.split()[0]
        assert "=" in first or first in SAID or COMMANDS.match(first), text
        if first not in SAID and not re.search(r"s' |'s\b", text):  # an apostrophe is not a quote
            shlex.split(text)
    causes = [each.confirm for each in fault.alternatives]
    assert len(set(causes)) == len(causes)


def keys_of_profiles():
    """Return the path of each key that a profile may have; a path below which keys are free ends with a dot."""
    keys = set()

    def walk(section, prefix):
        for field in dataclasses.fields(section):
            keys.add(f"{prefix}{field.name}")
            kind = typing.get_type_hints(section)[field.name]
            kinds = [kind, *typing.get_args(kind)]
            below = [each for each in kinds if dataclasses.is_dataclass(each)]
            for each in below:
                walk(each, f"{prefix}{field.name}.")
            if not below:
                keys.add(f"{prefix}{field.name}.")

    walk(Profile, "")
    return keys


NO_KEY = re.compile(r"nvidia\.com/\S+|gpu\.nvidia\.com")  # labels, a DeviceClass


def test_no_command_asks_for_pods_of_the_trial():
    """Pods are deleted before the report is read; events, logs/ and another run remain."""
    assert not [f.id for f in FAULTS.values() for text in (*commands_of(f), f.remedy) if "managed-by" in text]


def test_a_remedy_names_only_keys_that_a_profile_has():
    """Keys of profile sections only; ids of checks and faults have the same form."""
    keys, checks = keys_of_profiles(), set(declared_checks(["--training"]))
    sections = "|".join({key.partition(".")[0] for key in keys})
    assert {"pod.capabilities", "launch.mpi.sshd"} <= keys
    for fault in FAULTS.values():
        for key in re.findall(rf"\b(?:{sections})\.[a-z][a-z0-9_.-]*[a-z0-9_]", NO_KEY.sub("", fault.remedy)):
            free = any(key.startswith(each) for each in keys if each.endswith("."))
            assert key in keys or free or key in checks or key in FAULTS, (fault.id, key)


def test_a_remedy_names_only_options_that_a_command_has():
    """Options after `seatrial COMMAND`, and options in brackets, which belong to seatrial accept."""
    parsers = {"accept": run_parser("accept"), "preflight": run_parser("preflight")}
    known = {name: {o for a in each.arguments() for o in a.option_strings} for name, each in parsers.items()}
    seen = set()
    for fault in FAULTS.values():
        if fault.id in fault_catalogue():
            continue
        for text in (fault.confirm, fault.remedy):
            asked = re.findall(r"seatrial (accept|preflight)\b((?: (?!with )[^;|) ]+)*)", text)
            bare = re.findall(r"\((--(?!blocking-pod|enable-scheme)[a-z-]+)", text)  # of kured and of an operator
            wanted = {(c, o) for c, more in asked for o in re.findall(r"--[a-z-]+", more)} | {
                ("accept", o) for o in bare
            }
            seen |= wanted
            assert not [each for each in wanted if each[1] not in known[each[0]]], (fault.id, wanted)
    assert ("accept", "--launcher") in seen


def test_no_fault_is_in_the_catalogue_twice(root):
    """YAML and dict keep only the last of two entries with one id; within a file the strict reader refuses it."""
    files = (root / "seatrial" / "faults").rglob("*.yaml")
    entries = [fault for path in files for fault in read_yaml(path).get("faults", ())]
    assert sorted(entries) == sorted(FAULTS)


def test_entries_that_are_read_one_by_one_are_those_of_the_whole_file():
    """Log faults are read individually on demand."""
    catalogue = fault_catalogue()
    files = sorted(FOLDER.glob("logs/*.yaml"))
    whole = [each for path in files if path.name != "quiet.yaml" for each in read_faults(path).items()]
    assert list(catalogue.items()) == whole


def test_a_key_that_no_fault_has_is_refused(tmp_path):
    """A misspelt `remedy` key would leave a fault without a remedy."""
    path = tmp_path / "faults.yaml"
    text = "layer: 1 API\nfaults:\n  a.b: {title: t, meaning: m, confirm: c, remedy: r, source: s, locok: layer 2}\n"
    path.write_text(text)
    with pytest.raises(TypeError, match="locok"):
        read_faults(path)
    path.write_text(text.replace("locok", "look"))
    assert read_faults(path)["a.b"].first_look() == "layer 2"


def test_the_cluster_faults_end_their_sentences():
    """Texts are complete sentences, and commands can be pasted."""
    for fault in FAULTS.values():
        if fault.id not in fault_catalogue():
            for trial in (True, False):
                meaning, remedy, confirm = (
                    told_of(text, trial=trial) for text in (fault.meaning, fault.remedy, fault.confirm)
                )
                assert meaning.rstrip().endswith((".", ")")), fault.id
                assert remedy.rstrip().endswith((".", ")")), fault.id
                assert confirm.split()[0] in ("kubectl", "seatrial", "grep"), fault.id


def test_commands_are_filled_in():
    """The finding's subject and the namespace are substituted."""
    assert explain("nodes.cordoned", "gpu-node-1")["confirm"] == "kubectl get node gpu-node-1"
    assert explain("gpu.ecc", "gpu-node-1 GPU 3")["confirm"].startswith("kubectl debug node/gpu-node-1 ")
    assert explain("quota.exceeded", "q", "team")["confirm"] == "kubectl -n team describe resourcequota"
    assert (
        explain("rights.missing", "get pods/log in team")["confirm"]
        == "kubectl auth can-i get pods --subresource=log -n team"
    )
    assert explain("rights.missing", "list nodes")["confirm"] == "kubectl auth can-i list nodes"
    assert explain("gpu.missing")["confirm"].startswith("kubectl get node NODE ")


def test_a_namespace_that_goes_is_asked_for_by_its_name_whatever_was_refused_in_it():
    for subject in ("namespace", "team", "job/seatrial-x"):
        assert explain("namespace.terminating", subject, "team")["confirm"].startswith("kubectl get namespace team ")


def test_jsonpath_braces_survive():
    """Only known placeholders are substituted."""
    assert fill("get {node} -o jsonpath='{.spec.taints}'", "n") == "get n -o jsonpath='{.spec.taints}'"
    assert right_arguments("gpu-node-1") == ""


def test_an_unknown_fault_is_explained_as_unknown():
    """An unknown fault id never breaks a report."""
    assert "no entry" in explain("no.such-fault")["meaning"]


@pytest.mark.parametrize(
    ("fault", "subject", "further", "command"),
    [
        ("sweep.node", "n-3", ["n-0", "n-1"], "seatrial accept --on n-3,n-0"),
        ("sweep.node", "n-3", [], "seatrial accept --on n-3,NODE"),
        ("sweep.suspect", "n-3", ["n-0", "n-1"], "seatrial sweep --on n-3,n-0,n-1 --budget 10m"),
        ("sweep.uplink", "uplink of leaf-1", ["n-4", "n-5", "n-0", "n-1"], "seatrial sweep --on n-4,n-5,n-0,n-1"),
        ("sweep.node", "NODE", ["$(reboot)"], "seatrial accept --on NODE,'$(reboot)'"),
    ],
)
def test_commands_that_need_further_nodes_name_them(fault, subject, further, command):
    """Commands name nodes without a bad finding; if there are none, the placeholder remains."""
    assert explain(fault, subject, other_nodes=further)["confirm"] == command


def test_further_nodes_are_none_of_which_anything_bad_was_found():
    """An uplink is confirmed with two nodes behind it and two nodes elsewhere."""
    rows = [{"name": f"n-{n}", "leaf": f"leaf-{n // 4}"} for n in range(12)]
    swept = {"proven": [f"n-{n}" for n in range(12) if n != 3], "elements": {"nodes": rows}}
    run = Run(sweep=swept)
    result = SimpleNamespace(findings=[Finding(subject="n-0 rail mlx5_3", ok=False, observed="slow")])
    assert further_nodes(run, result, "n-0 rail mlx5_3")[:3] == ["n-1", "n-2", "n-4"]
    assert further_nodes(run, result, "uplink of leaf-1") == ["n-4", "n-5", "n-1", "n-2"]
