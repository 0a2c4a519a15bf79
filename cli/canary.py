"""``seatrial accept --nodes NEW --partner GOOD``: tests one upgraded node with known-good nodes.

It takes two runs: first good nodes with each other, then the upgraded node with a good one. A failure of the second is
attributed to the upgraded node only if the first was accepted. Otherwise, or if too few nodes are idle, the answer is
inconclusive.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks.framework import signals
from checks.framework.options import ALL
from checks.profiles.loader import Profile, ProfileError, load_profile, profile_names
from checks.profiles.trial import spec_of
from checks.rules.capacity import rooms
from cli.usage import INCONCLUSIVE, USAGE, Parser, connect, own_program, refuse
from jobs.cluster.client.errors import ClusterError, ConfigError
from jobs.cluster.client.kube import Kube
from jobs.cluster.facts.inventory import Inventory
from jobs.run.cleanup import sweep_dead
from jobs.trial.spec import TrialSpec

HOSTNAME = "kubernetes.io/hostname"


def parser() -> Parser:
    """Return the parser for the options of ``accept`` that decide the pairs; others are passed on."""
    made = Parser(prog="seatrial accept", add_help=False)
    made.add_argument("--partner", required=True)
    made.add_argument("--nodes", required=True)
    made.add_argument("--cluster", default="kubeconfig")
    made.add_argument("--profile")
    for name in ("kubeconfig", "context", "namespace"):
        made.add_argument(f"--{name}")
    made.add_argument("--out", type=Path)
    return made


def main(arguments: Sequence[str]) -> int:
    """Run both trials; return the second one's exit code, or 10."""
    options, further = parser().parse_known_args(list(arguments))
    if options.nodes == ALL:
        return refuse("accept", "--nodes all contradicts --partner: leave one of them out")
    if "--detach" in further:
        return refuse("accept", "--partner runs two trials in sequence: omit --detach")
    try:
        with _reached(options) as (kube, profile):
            return _pair(options, kube, profile, further)
    except (ProfileError, ConfigError, argparse.ArgumentTypeError) as error:
        return refuse("accept", error)
    except ClusterError as error:
        return refuse("accept", error, INCONCLUSIVE)


@contextlib.contextmanager
def _reached(options: argparse.Namespace) -> Iterator[tuple[Kube, Profile]]:
    """Connect; a simulated cluster is started once and serves both runs through its kubeconfig."""
    kind, _, scenario = options.cluster.partition(":")
    if kind != "sim":
        kube = connect(options)
        yield kube, load_profile(options.profile) if options.profile else Profile()
        return
    from checks.framework.simulation import simulated  # noqa: PLC0415 -- only a simulated run needs it

    with simulated(scenario) as simulation:
        options.kubeconfig, options.cluster = simulation.kubeconfig, "kubeconfig"
        platform = simulation.facts["platform"]
        options.profile = options.profile or (platform if platform in profile_names() else None)
        kube = Kube.connect(kubeconfig=options.kubeconfig, context=None, namespace=options.namespace)
        yield kube, load_profile(options.profile) if options.profile else Profile()


@dataclass(frozen=True, slots=True)
class Pairing:
    """The nodes to try, in order; ``why`` explains an impossible request."""

    control: tuple[str, ...] = ()  # good nodes with each other
    trial: tuple[str, ...] = ()
    why: str = ""


def pair(new: Sequence[str], good: Sequence[str], need: int) -> Pairing:
    """Pair idle upgraded nodes with idle known-good ones for trials of ``need`` nodes."""
    good = [name for name in good if name not in new]
    if not new:
        return Pairing(why="no idle node matches --nodes: there is nothing to try")
    if len(good) < need - 1:
        return Pairing(
            why=f"{len(good)} idle nodes match --partner; {need - 1} are needed as partners of the upgraded one"
        )
    trial = (new[0], *good[: need - 1])
    if len(good) < need:
        why = "they cannot be tested with each other, and a failure could not be attributed"
        return Pairing(trial=trial, why=f"{len(good)} idle nodes match --partner: {why}")
    return Pairing(control=tuple(good[:need]), trial=trial)


@dataclass(frozen=True, slots=True)
class Able:
    """Nodes that could take a pod of the trial now, and those that never could in their present state."""

    idle: list[str]
    hosts: dict[str, str]  # node -> its label kubernetes.io/hostname
    broken: list[str]  # not Ready or too few GPUs, which the trial reports; not busy, cordoned or tainted


def _able(kube: Kube, spec: TrialSpec, selector: str) -> Able:
    cluster = Inventory.read(kube, selector=selector)
    nodes = {node.name: node for node in cluster.gpu_nodes(spec.gpu_resource)}
    faults = {room.node: room.fault for room in rooms(cluster, nodes.values(), spec)}
    idle = [name for name, fault in faults.items() if not fault and nodes[name].ready]
    least = spec.gpus_per_node
    broken = [
        name
        for name, fault in faults.items()
        if fault in ("", "gpu.taken", "gpu.missing")
        and (not nodes[name].ready or nodes[name].allocatable.get(spec.gpu_resource, 0) < least)
    ]
    return Able(idle, {name: node.labels.get(HOSTNAME, "") for name, node in nodes.items()}, broken)


def hosts_of(names: Collection[str], cluster: Inventory) -> list[str]:
    """Return the host names of these nodes from their labels; '' for a node without the label."""
    return [node.labels.get(HOSTNAME, "") for node in cluster.nodes if node.name in names]


def only_these(hosts: Sequence[str]) -> str:
    """Return a selector of these nodes by host name, so that no others are judged; '' if a host name is missing."""
    return f"{HOSTNAME} in ({','.join(hosts)})" if hosts and all(hosts) else ""


def _pair(options: argparse.Namespace, kube: Kube, profile: Profile, further: Sequence[str]) -> int:
    spec = spec_of(profile, run_id="canary", namespace=kube.namespace)

    for name in sweep_dead(kube, spec.launcher).deleted:
        print(f"seatrial accept: deleted {name}, left by a killed run")
    new = _able(kube, spec, options.nodes)
    good = _able(kube, spec, options.partner)
    chosen = pair(new.idle or new.broken, good.idle, spec.nodes)
    hosts = new.hosts | good.hosts
    if chosen.why:
        print(f"seatrial accept: {chosen.why} (--nodes {options.nodes}, --partner {options.partner})")
    if not chosen.trial:
        return INCONCLUSIVE
    if chosen.control:
        print(f"seatrial accept: first a trial of the known-good nodes alone: {', '.join(chosen.control)}", flush=True)
        code = _run(options, chosen.control, further, "control", hosts)
        if code in (2, USAGE):
            return code
        if code:
            print(
                f"seatrial accept: the trial of the known-good nodes did not pass (exit code {code}), so "
                f"{chosen.trial[0]} was not tried"
            )
            return INCONCLUSIVE
    print(f"seatrial accept: now {chosen.trial[0]} with {', '.join(chosen.trial[1:])}", flush=True)
    code = _run(options, chosen.trial, further, "", hosts)
    return INCONCLUSIVE if code == 1 and not chosen.control else code


def _run(
    options: argparse.Namespace, nodes: Sequence[str], further: Sequence[str], folder: str, hosts: Mapping[str, str]
) -> int:
    """Run the trial on these nodes; only they are judged, so that a broken new node does not fail the good ones."""
    names = ("profile", "kubeconfig", "context", "namespace")
    given: dict[str, Any] = {f"--{name}": getattr(options, name) for name in names}
    given["--on"] = ",".join(nodes)
    if judges := only_these([hosts[name] for name in nodes]):
        given["--nodes"] = judges
    if options.out:
        given["--out"] = options.out / folder
    program, environment = own_program()
    arguments_given = [word for key, value in given.items() if value for word in (key, str(value))]
    with signals.child([*program, "accept", *arguments_given, *further], environment) as run:
        return run.wait()
