"""The command ``seatrial sweep --plan``: rounds, slots, minutes and GPU-hours of a fleet's sweep, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from checks.framework.options import seconds
from cli.usage import Parser
from jobs.pod.sweep.decode import spare
from jobs.pod.sweep.judgement import matchings_of
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round
from jobs.trial.parts import DCGM_S, DcgmSpec

DESCRIPTION = """\
Test every free node of a fleet, alone and in pairs, in one job; name the node, the rail, the uplink or the pair at
fault. Takes the options of `seatrial accept`. With --plan: print the cost, and start nothing."""
EPILOG = """\
Without --plan also --resume DIR, which continues that run, --take-in, which lets pods wait for busy nodes that may
become free, and the options of seatrial accept except --checkpoint and --gang."""
EXAMPLES = (
    "seatrial sweep --plan --nodes 64 --leaf-size 16",
    "seatrial sweep --profile h100-ib --budget 10m --out sweep",
    "seatrial sweep --profile h100-ib --resume sweep --out again",
    "seatrial sweep --profile h100-ib --nodes rack=r7 --at-once 4 --no-scale",
)

ROUND_S = 40
"""Seconds per round: the published estimate of one all_reduce test in a gang that already runs (docs/fleet.md)."""
START_S = 180
"""Seconds until all pods run: image, scheduling and rendezvous of one Job take 1 to 4 minutes (docs/fleet.md)."""
TRAIN_S = 60
"""Seconds that the training steps of each node alone add to the first round (docs/fleet.md); 240 at most."""
LARGEST = 10_000
PAIR = 2
"""The number of nodes that a single pair covers, so that no job over all nodes follows."""


def parser() -> Parser:
    """Return the parser of ``seatrial sweep --plan``."""
    made = Parser(prog="seatrial sweep", description=DESCRIPTION, epilog=EPILOG, examples=EXAMPLES)
    made.add_argument("--plan", action="store_true", help="print the plan, start nothing")
    made.add_argument("--nodes", type=int, metavar="N", help="nodes of the fleet")
    made.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="default: 8")
    made.add_argument(
        "--leaf-size", type=int, default=0, metavar="N", help="nodes per leaf switch (default: not known)"
    )
    made.add_argument("--budget", metavar="TIME", help="end after this time: 90s, 30m, 2h")
    made.add_argument("--at-once", type=int, default=0, metavar="K", help="tests at a time (default: all)")
    made.add_argument(
        "--no-scale",
        action="store_true",
        help="no job over all nodes at the end: nodes are released as they are proven",
    )
    made.add_argument("--training", action="store_true", help="each node trains alone, too, in the first round")
    levels = "and DCGM's diagnostics of this level run on each: 1 to 4"
    made.add_argument("--dcgm", type=int, choices=range(5), default=0, metavar="LEVEL", help=levels)
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the plan; return 0, or 4 with a one-line error."""
    made = parser()
    options = made.parse_args(list(arguments))
    if options.nodes is None or not 1 <= options.nodes <= LARGEST:
        made.error(f"--plan needs --nodes N, from 1 to {LARGEST:,}")
    if options.gpus_per_node < 1 or options.leaf_size < 0 or options.at_once < 0:
        made.error("--gpus-per-node is at least 1, --leaf-size and --at-once are not negative")
    try:
        budget_s = seconds(options.budget)
    except ValueError as error:
        made.error(str(error))
    names = tuple(f"node-{number:05}" for number in range(options.nodes))
    leaves = {n: f"leaf-{i // options.leaf_size:05}" for i, n in enumerate(names)} if options.leaf_size else {}
    fleet, rules = Fleet(names, leaves), Rules(at_once=options.at_once, bus=options.gpus_per_node > 1)
    if options.nodes == 1:
        print("1 node: no pair to test, so the sweep is never a go")
    dcgm = DcgmSpec(level=options.dcgm, limit_s=DCGM_S[options.dcgm]) if options.dcgm else None
    alone_s = TRAIN_S * options.training + (int(dcgm.usual_s) if dcgm else 0)
    said = [f"trains alone, too: {TRAIN_S} s more, 240 s at most"] * options.training
    if dcgm:
        limit = f"{dcgm.limit_s:.0f} s at most"
        said.append(f"is diagnosed, too (dcgmi diag -r {dcgm.level}, if its image has it): {dcgm.usual} more, {limit}")
    _show(fleet, rules, options.gpus_per_node, budget_s, scale=not options.no_scale, alone_s=alone_s, said=said)
    return 0


@dataclass(frozen=True)
class Plan:
    """The rounds of a sweep, how many nodes each holds, and whether a job over all passed nodes follows."""

    rounds: list[Done]
    held: list[int]
    scale: bool


def _plan(fleet: Fleet, rules: Rules, bad: str | None, *, scale: bool) -> Plan:
    """Simulate a sweep without failures, or with one named node that fails with every partner."""
    history: list[Done] = []
    held: list[int] = []
    while (each := next_round(fleet, rules, history)) is not None:
        if not scale:
            released = spare(fleet, rules, history, each, set(fleet.nodes[:1]))
            fleet = replace(fleet, gone={**fleet.gone, **dict.fromkeys(released, "released")})
        held.append(len(fleet.nodes) - len(fleet.gone))
        slow = {test for test in each.tests if len(test) > 1 and bad in test}
        results = {test: Result("measured", 50.0 if test in slow else 100.0, (), test) for test in each.tests}
        history.append(Done(each, results))
    return Plan(history, held, scale and len(fleet.nodes) > PAIR)


def _show(
    fleet: Fleet, rules: Rules, gpus: int, budget_s: float | None, *, scale: bool, alone_s: int, said: Sequence[str]
) -> None:
    plan = _plan(fleet, rules, None, scale=scale)
    names = {0: "every node alone", matchings_of(fleet, rules) + 1: "what is open"}
    print(f"{'round':>5}  {'tests':>5}  {'nodes':>5}  what")
    for done in plan.rounds:
        tests = done.round.tests
        across = sum(fleet.crosses(test) for test in tests)
        pairs = f"pairs, {across} of them across leaves" if fleet.leaves else "pairs"
        print(f"{done.round.number:>5}  {len(tests):>5}  {_slots([done]):>5}  {names.get(done.round.stage, pairs)}")
    if plan.scale:
        print(f"{'end':>5}  {1:>5}  {len(fleet.nodes):>5}  one job over all nodes that passed")
    for each in said:
        print(f"in round 1 every node {each}")
    print(f"nothing fails: {_cost(fleet, plan, gpus, alone_s)}")
    if len(fleet.nodes) > 1:
        print(f"one bad node:  {_cost(fleet, _plan(fleet, rules, fleet.nodes[0], scale=scale), gpus, alone_s)}")
    if budget_s is None:
        return
    fit = max(0, int((budget_s - START_S - alone_s) // ROUND_S))
    paired = [node for done in plan.rounds[:fit] for test in done.round.tests if len(test) > 1 for node in test]
    missing = len(set(fleet.nodes) - set(paired))
    if fit >= len(plan.rounds):
        print(f"budget: enough for {fit} rounds")
    else:
        print(f"budget: ends after {fit} of {len(plan.rounds)} rounds: {missing} nodes in no pair; that is not a go")


def _slots(rounds: Sequence[Done]) -> int:
    return sum(len(test) for done in rounds for test in done.round.tests)


def _cost(fleet: Fleet, plan: Plan, gpus: int, alone_s: int) -> str:
    """Describe the cost of a plan; all GPUs of a node are held until it is released."""
    size, ends = len(fleet.nodes), ROUND_S * plan.scale
    spent_s = START_S + alone_s + ROUND_S * len(plan.rounds) + ends
    pairs = sum(len(test) for done in plan.rounds for test in done.round.tests if len(test) > 1) / size
    hours = gpus * (size * (START_S + alone_s + ends) + ROUND_S * sum(plan.held)) / 3600
    rounds = f"{len(plan.rounds)} round{'s' * (len(plan.rounds) > 1)}{' and the end' * plan.scale}"
    released = size - plan.held[-1] if plan.held else 0
    gone = f" ({released} nodes released before the last round)" if released else ""
    return (
        f"{rounds}, {_slots(plan.rounds) / size:.2f} slots per node ({pairs:.2f} in pairs), "
        f"about {spent_s / 60:.0f} min, at most {hours:,.1f} GPU-hours{gone}"
    )
