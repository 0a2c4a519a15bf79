"""``seatrial policy``: an admission policy that keeps training jobs as the accepted trial was."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from checks.profiles.loader import ProfileError, load_profile
from checks.profiles.trial import spec_of
from cli.usage import Parser, refuse
from jobs.trial.admission_policy import policies
from jobs.trial.names import SpecError
from reports.record import read_json
from reports.schema import RecordError

DESCRIPTION = """\
Print a ValidatingAdmissionPolicy and its binding (Kubernetes 1.30 and later): in one namespace, a pod that takes all
GPUs of a node must also ask for what the trial's pods needed to train across nodes (NIC, network annotation,
IPC_LOCK, the queue's label). Apply it as an administrator: seatrial policy ... | kubectl apply -f -"""
EXAMPLES = ("seatrial policy --profile h100-ib --warn | kubectl apply -f -",)

SWITCH_ON = """\
# Not enforced, only advised: what training pods should set so that the next hang explains itself (docs/hang.md):
#   NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET, TORCH_FR_BUFFER_SIZE=2000,
#   TORCH_NCCL_DUMP_ON_TIMEOUT=1, TORCH_NCCL_ENABLE_TIMING=1, TORCH_FR_DUMP_TEMP_FILE on a volume that outlives the
#   pod; leave NCCL_RAS_ENABLE unset; in the program, init_process_group(timeout=...) and new_group(timeout=...) of 10
#   to 30 minutes
"""


def parser() -> Parser:
    """The options of ``seatrial policy``."""
    made = Parser(prog="seatrial policy", description=DESCRIPTION, examples=EXAMPLES)
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", metavar="NAME|FILE", help="what training needs here")
    source.add_argument(
        "--record",
        metavar="DIR|report.json",
        type=Path,
        help="an accepted run: its profile, with the proof that it works",
    )
    made.add_argument(
        "--namespace",
        metavar="NAME",
        default=os.environ.get("TAO_K8S_NAMESPACE"),
        help="where the policy holds (default: the record's, $TAO_K8S_NAMESPACE)",
    )
    made.add_argument("--warn", action="store_true", help="warn and audit instead of refusing")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the policy; 0, or 4 with one line."""
    options = parser().parse_args(list(arguments))
    try:
        profile, namespace = _asked(options)
        spec = spec_of(load_profile(profile), run_id="policy", namespace=namespace)
        made = policies(spec, enforce=not options.warn)
    except (ProfileError, RecordError, SpecError) as error:
        return refuse("policy", error)
    if not made:
        why = "ask for nothing beside GPUs" if spec.gpu_resource else "claim their GPUs; a pod does not say how many"
        return refuse("policy", f"the pods of profile {profile} {why}")
    print(SWITCH_ON + yaml.safe_dump_all(made, sort_keys=False, width=118), end="")
    return 0


def _asked(options: argparse.Namespace) -> tuple[str, str]:
    """Return profile and namespace. Raises RecordError for a run that proves nothing, or what is not said."""
    profile, namespace = options.profile, options.namespace
    if options.record is not None:
        record = read_json(options.record)
        if record["verdict"] != "go" or record["scope"] != "full":
            raise RecordError(f"run {record['run_id']} was not accepted in full: it proves nothing to hold others to")
        profile, namespace = record["profile"], namespace or record["cluster"].get("namespace")
    if not profile:
        raise RecordError("the run had no profile: --profile is needed")
    if not namespace:
        raise RecordError("--namespace is needed: where does the policy hold?")
    return str(profile), str(namespace)
