"""``seatrial policy``: writes an admission policy that requires training jobs to match the accepted trial."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from checks.profiles.loader import ProfileError, load_profile, profile_names
from checks.profiles.trial import spec_of, spec_of_record
from cli.usage import Parser, refuse
from jobs.trial.admission_policy import policies
from jobs.trial.names import SpecError
from jobs.trial.spec import TrialSpec
from reports.record import read_json
from reports.schema import RecordError

DESCRIPTION = """\
Print a ValidatingAdmissionPolicy and its binding (Kubernetes 1.30 and later): in one namespace, a pod that takes all
GPUs of a node must also request the trial pods' resources for training across nodes (NIC, network annotation,
IPC_LOCK, the queue's label). Apply it as an administrator: seatrial policy ... | kubectl apply -f -"""
EXAMPLES = (
    "seatrial policy --profile h100-ib --warn | kubectl apply -f -",
    "seatrial policy --record report --namespace team-a",
)

SWITCH_ON = """\
# Not enforced, only advised: settings of training pods that make the next hang diagnosable (docs/hang.md):
#   NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET, TORCH_FR_BUFFER_SIZE=2000,
#   TORCH_NCCL_DUMP_ON_TIMEOUT=1, TORCH_NCCL_ENABLE_TIMING=1, TORCH_FR_DUMP_TEMP_FILE on a volume that outlives the
#   pod; leave NCCL_RAS_ENABLE unset; in the program, init_process_group(timeout=...) and new_group(timeout=...) of 10
#   to 30 minutes
"""


def parser() -> Parser:
    """Return the parser of ``seatrial policy``."""
    made = Parser(prog="seatrial policy", description=DESCRIPTION, examples=EXAMPLES)
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", metavar="NAME|FILE", help="requirements of training on this cluster")
    source.add_argument(
        "--record", metavar="DIR|report.json", type=Path, help="an accepted run: the proven requests of its pods"
    )
    made.add_argument(
        "--namespace",
        metavar="NAME",
        default=os.environ.get("TAO_K8S_NAMESPACE"),
        help="the namespace of the policy (default: the record's, $TAO_K8S_NAMESPACE)",
    )
    made.add_argument("--warn", action="store_true", help="warn and audit instead of refusing")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the policy; return 0, or 4 with a one-line error."""
    options = parser().parse_args(list(arguments))
    try:
        whose, spec = (
            _accepted(options) if options.record is not None else _profiled(options.profile, options.namespace)
        )
        made = policies(spec, enforce=not options.warn)
    except (ProfileError, RecordError, SpecError) as error:
        return refuse("policy", error)
    if not made:
        why = "request nothing but GPUs" if spec.gpu_resource else "claim their GPUs; a pod does not show how many"
        return refuse("policy", f"the pods of {whose} {why}")
    print(SWITCH_ON + yaml.safe_dump_all(made, sort_keys=False, width=118), end="")
    return 0


def _accepted(options: argparse.Namespace) -> tuple[str, TrialSpec]:
    """Return the run and its trial from its record. Raises RecordError for a run that proves nothing."""
    record = read_json(options.record)
    run, trial, namespace = record["run_id"], record["trial"], options.namespace or record["cluster"].get("namespace")
    if record["verdict"] != "go" or record["scope"] != "full":
        raise RecordError(f"run {run} was not accepted in full: it proves nothing that a policy could require")
    if "pod" in trial:
        spec = spec_of_record(trial["pod"], image=trial.get("image", ""), namespace=_named(namespace))
        return f"run {run}", spec
    # Records of earlier versions only name the profile; another one of that name has other requests.
    profile = str(record["profile"])
    if profile not in profile_names() or load_profile(profile).digest != record["profile_digest"]:
        raise RecordError(f"the record of run {run} does not contain its pods' requests: name the profile, --profile")
    return _profiled(profile, namespace)


def _profiled(profile: str, namespace: str | None) -> tuple[str, TrialSpec]:
    """Return a description of a profile, and its trial."""
    spec = spec_of(load_profile(profile), run_id="policy", namespace=_named(namespace))
    return f"profile {profile}", spec


def _named(namespace: str | None) -> str:
    if not namespace:
        raise RecordError("--namespace is required: the namespace of the policy")
    return namespace
