"""The command ``seatrial sweep --plan``: rounds, slots, minutes and GPU-hours of a fleet's sweep, without a cluster."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from checks.framework.options import seconds
from cli.usage import Parser
from jobs.pod.sweep.judgement import matchings_of
from jobs.pod.sweep.model import Done, Fleet, Result, Rules
from jobs.pod.sweep.plan import next_round

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION = """\
Test every free node of a fleet, alone and in pairs, in one job; name the node, the rail, the uplink or the pair at
fault. Takes the options of `seatrial accept`. With --plan: print what that costs, and start nothing."""
EPILOG = """\
Without --plan also --resume DIR, which goes on with that run, --no-scale, which leaves out the job over all nodes and
releases nodes as they are proven, and every option of seatrial accept."""
EXAMPLES = (
    "seatrial sweep --plan --nodes 64 --leaf-size 16",
    "seatrial sweep --profile h100-ib --budget 10m --out sweep",
    "seatrial sweep --profile h100-ib --resume sweep --out again",
)

ROUND_S = 40
"""Seconds per round: the published estimate of one all_reduce test in a gang that already runs (docs/fleet.md)."""
START_S = 180
"""Seconds until all pods run: image, scheduling and rendezvous of one Job take 1 to 4 minutes (docs/fleet.md)."""
LARGEST = 10_000


def parser() -> Parser:
    """The options of ``seatrial sweep``."""
    made = Parser(prog="seatrial sweep", description=DESCRIPTION, epilog=EPILOG, examples=EXAMPLES, allow_abbrev=False)
    made.add_argument("--plan", action="store_true", help="print the plan, start nothing")
    made.add_argument("--nodes", type=int, metavar="N", help="nodes of the fleet")
    made.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="default: 8")
    made.add_argument(
        "--leaf-size", type=int, default=0, metavar="N", help="nodes per leaf switch (default: not known)"
    )
    made.add_argument("--budget", metavar="TIME", help="end after this time: 90s, 30m, 2h")
    made.add_argument("--at-once", type=int, default=0, metavar="K", help="tests at a time (default: all)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the plan; 0, or 4 with one line."""
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
    fleet, rules = Fleet(names, leaves), Rules(at_once=options.at_once)
    if options.nodes == 1:
        print("1 node: it is tested alone, there is no pair to test, and its sweep is never a go")
    _show(fleet, rules, options.gpus_per_node, budget_s)
    return 0


def _rounds(fleet: Fleet, rules: Rules, bad: str | None) -> list[Done]:
    """Play a sweep in which nothing fails but, where one is named, one node with every partner."""
    history: list[Done] = []
    for _ in count():
        each = next_round(fleet, rules, history)
        if each is None:
            return history
        slow = {test for test in each.tests if len(test) > 1 and bad in test}
        results = {test: Result("measured", 50.0 if test in slow else 100.0, (), test) for test in each.tests}
        history.append(Done(each, results))
    return history


def _show(fleet: Fleet, rules: Rules, gpus: int, budget_s: float | None) -> None:
    plan = _rounds(fleet, rules, None)
    names = {0: "every node alone", matchings_of(fleet, rules) + 1: "what is open"}
    print(f"{'round':>5}  {'tests':>5}  {'nodes':>5}  what")
    for done in plan:
        tests = done.round.tests
        across = sum(fleet.crosses(test) for test in tests)
        pairs = f"pairs, {across} of them across leaves" if fleet.leaves else "pairs"
        print(f"{done.round.number:>5}  {len(tests):>5}  {_slots([done]):>5}  {names.get(done.round.stage, pairs)}")
    print(f"nothing fails: {_cost(fleet, plan, gpus)}")
    if len(fleet.nodes) > 1:
        print(f"one bad node:  {_cost(fleet, _rounds(fleet, rules, fleet.nodes[0]), gpus)}")
    if budget_s is None:
        return
    fit = max(0, int((budget_s - START_S) // ROUND_S))
    paired = [node for done in plan[:fit] for test in done.round.tests if len(test) > 1 for node in test]
    missing = len(set(fleet.nodes) - set(paired))
    if fit >= len(plan):
        print(f"budget: enough for {fit} rounds")
    else:
        print(f"budget: ends after {fit} of {len(plan)} rounds: {missing} nodes in no pair; that is no go")


def _slots(plan: Sequence[Done]) -> int:
    return sum(len(test) for done in plan for test in done.round.tests)


def _cost(fleet: Fleet, plan: Sequence[Done], gpus: int) -> str:
    """Say what a plan costs. All GPUs are held from the start to the end: nobody else has them meanwhile."""
    spent_s = START_S + ROUND_S * len(plan)
    pairs = sum(len(test) for done in plan for test in done.round.tests if len(test) > 1) / len(fleet.nodes)
    hours = spent_s / 3600 * gpus * len(fleet.nodes)
    return (
        f"{len(plan)} rounds, {_slots(plan) / len(fleet.nodes):.2f} slots per node ({pairs:.2f} in pairs), "
        f"about {spent_s / 60:.0f} min, at most {hours:,.1f} GPU-hours"
    )
