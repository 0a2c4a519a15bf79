"""The coordinator of a sweep, in rank 0's pod: assigns tests to the agents in rounds, and prints the results.

The pure planner in sweep/ chooses the next test and the end; a reader of the log judges again with the same code. A
test without a result within its time has measured nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from functools import partial
from typing import Any, Callable, Collection, Dict, List, Sequence, Set, Tuple

from ..sweep.model import Done, Fleet, Round, Rules
from . import fleettest
from .deadline import Watch
from .lines import Writer
from .messages import HELLO_TIMEOUT_S, NoAnswerError, Peer, serve
from .planner import Answers, Nodes, Planner, printed
from .proof import code, nonce, same
from .spec import Identity, Trial

PORTS = 400  # above MASTER_PORT; each test has its own, and the next one for a second program
SLACK_S = 25.0 + fleettest.ENDING_S  # time for an agent after its test's limit
MOST_OF = 3  # nodes from which a majority counts; both if there are only two
MOST_TEXT = 200
LONGEST_RESULT = 64 * 1024
"""Bytes: 16 GPUs and 16 NICs with all their facts are 10 KiB, their steps 28, DCGM's results 12."""
DIAGNOSED_S = 30.0  # beyond the limit of DCGM's diagnostics, to terminate its host engine
STACK_BYTES = 256 * 1024  # of a thread that reads one connection
BYE_S = 3.0
RELEASED = "released: it has passed"
SAY_S = 5.0


class Member:
    """An agent that has proven its identity."""

    def __init__(
        self,
        channel: Peer,
        rank: int,
        node: str,
        pod_ip: str,
        rails: List[str],
        writes: Sequence[str] = (),
        *,
        diagnoses: bool = False,
    ) -> None:
        self.channel, self.rank, self.node, self.pod_ip, self.rails = channel, rank, node, pod_ip, rails
        self.writes = writes  # NICs with which it can write over RDMA; empty if its image lacks the program
        self.diagnoses = diagnoses  # its image has DCGM's programs

    @property
    def here(self) -> bool:
        """Whether its connection is open."""
        return self.channel.open


class Coordinator:
    """The coordinator of one sweep, from the first agent's hello to the end."""

    def __init__(self, trial: Trial, me: Identity, watch: Watch, writer: Writer) -> None:
        assert trial.sweep is not None
        self.trial, self.me, self.watch, self.writer, self.sweep = trial, me, watch, writer, trial.sweep
        self.planner = Planner()
        self.members: Dict[str, Member] = {}
        self.changed = threading.Condition()
        self.results: Dict[Tuple[int, str], Dict[str, Any]] = {}
        self._number = 0
        self._closing = threading.Event()
        self._room = threading.Semaphore(2 * trial.nodes + 16)
        self._round_s: List[float] = []
        self._began = 0.0
        self._sent: Dict[str, Member] = {}  # agents that were sent a test; a pod that returns later was not
        self._fleets = 0
        self._released: Set[str] = set()
        self._trained: Set[str] = set()  # nodes with completed training steps alone
        self._diagnosed: Set[str] = set()  # nodes on which DCGM's diagnostics completed
        self._printed: Dict[str, int] = {}  # lines about single nodes, by kind
        self._reached_nics: Dict[str, bool] = {}  # by node that was tested alone: whether it reached its own NICs

    def run(self, listening: Callable[[], None]) -> None:
        """Lead the sweep; `listening` is called when agents can connect."""
        began = self._began = time.monotonic()
        threading.stack_size(STACK_BYTES)
        try:
            listener = self._listen()
        except OSError as error:
            self.writer.stage(
                "sweep.end", 0, {"why": "cannot listen on port %d: %s" % (self.trial.master_port, error)}, "error"
            )
            return
        serving = (listener, self._welcome, self._room, self._closing)
        threading.Thread(target=serve, args=serving, daemon=True).start()
        listening()
        try:
            limit = time.monotonic() + self.trial.peer_wait_s
            self._join(limit)
            self.watch.all_met()
            why = self._lead(limit)
        except Exception as problem:  # noqa: BLE001  (what was found so far is printed already)
            why = "the coordinator failed: %s: %s" % (type(problem).__name__, problem)
        seconds = time.monotonic() - began
        self.writer.stage("sweep.end", seconds, {"why": why[:MOST_TEXT]}, "failed" if why else "ok")
        for member in list(self.members.values()):
            member.channel.send({"seatrial": 1, "kind": "bye"})
        self._closing.set()
        self.watch_out(BYE_S)
        listener.close()

    # -- agents

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.me.pod_ip else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self.me.pod_ip, self.trial.master_port))
        listener.listen(min(4096, 64 + self.trial.nodes))
        return listener

    def _welcome(self, line: socket.socket) -> None:
        """Admit an agent that proves knowledge of the token; close any other connection without an answer."""
        try:
            peer = Peer(line)
            try:
                member = self._meet(peer)
            except (NoAnswerError, OSError):
                peer.close()
                return
            with self.changed:
                before = self.members.get(member.node)
                if before is not None and before.here:
                    before.channel.close()  # it has reconnected: its old connection is dead, but still open
                self.members[member.node] = member
                self.changed.notify_all()
            peer.listen(partial(self._hear, member), self._notify)
        finally:
            self._room.release()

    def _meet(self, peer: Peer) -> Member:
        mine, token = nonce(), self.sweep["token"]
        peer.say({"seatrial": 1, "kind": "challenge", "run": self.trial.run, "nonce": mine})
        hello = peer.next(HELLO_TIMEOUT_S)
        rank, node, pod_ip = hello.get("rank"), str(hello.get("node") or ""), str(hello.get("pod_ip") or "")
        about = "%s %s %s" % (rank, node, pod_ip)
        whole = isinstance(rank, int) and 0 <= rank < self.trial.nodes and node and hello.get("kind") == "hello"
        if not whole or not same(hello.get("proof"), code(token, "agent", mine, about)):
            raise NoAnswerError("a stranger")
        proof = code(token, "coordinator", str(hello.get("nonce")), about)
        peer.say({"seatrial": 1, "kind": "welcome", "proof": proof})
        peer.most = LONGEST_RESULT
        peer.known(HELLO_TIMEOUT_S)
        rails, writes = (_words(hello.get(key)) for key in ("rails", "writes"))
        diagnoses = hello.get("diagnoses") is True
        return Member(peer, int(rank or 0), node, pod_ip, rails, writes, diagnoses=diagnoses)

    def _hear(self, member: Member, message: Dict[str, Any]) -> None:
        number = message.get("id")
        if message.get("kind") == "result" and isinstance(number, int):
            with self.changed:
                if (number, member.node) in self.results or number > self._number:
                    return
                self.results[(number, member.node)] = message
                self.changed.notify_all()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def watch_out(self, limit_s: float) -> None:
        """Wait until all agents have disconnected, or some seconds have passed."""
        limit = time.monotonic() + limit_s
        with self.changed:
            while any(member.here and member.rank for member in self.members.values()) and time.monotonic() < limit:
                self.changed.wait(0.1)

    def _join(self, limit: float) -> bool:
        """Wait for the agents of all free nodes, until none has joined for a while, or until `limit`.

        Returns whether one has joined.
        """
        latest = spoke = time.monotonic()
        first = count = len(self.members)
        with self.changed:
            while not self._all_came() and not self.watch.stopped() and time.monotonic() < limit:
                now = time.monotonic()
                if len(self.members) > count:
                    count, latest = len(self.members), now
                if count >= min(2, self.trial.nodes) and now - latest > self.sweep["settle_s"]:
                    break
                if now - spoke > SAY_S:
                    spoke = now
                    self.writer.say("sweep: %d of %d agents have connected" % (count, len(self.sweep["nodes"])))
                self.changed.wait(0.1)
            return len(self.members) > first

    def _all_came(self) -> bool:
        return len(self.members) >= self.trial.nodes or all(node in self.members for node in self.sweep["nodes"])

    # -- rounds

    def _lead(self, join_limit: float) -> str:
        """Run rounds until the plan is complete; return why it ended early, or ''.

        Then wait once more for missing agents, as long as pods may take to start.
        """
        planner, rules = self.planner, self.planner.rules(self.sweep["rules"])
        history: List[Done] = planner.restored(self.sweep["history"])
        start, restored, shown = time.monotonic(), len(history), None
        while not self.watch.stopped():
            fleet = self._fleet()
            if (fleet, self._ranks()) != shown:
                self._print_fleet(fleet, restored)
                shown = fleet, self._ranks()
            left_s = self.sweep["budget_s"] - (time.monotonic() - start)
            each = planner.next_round(fleet, rules, history, left_s)
            if each is None and planner.next_round(fleet, rules, history, None) is not None:
                return "its budget of %.0f s is over after round %d" % (self.sweep["budget_s"], len(history))
            if each is None and self._join(join_limit):
                continue
            if each is None:
                return self._end(fleet, rules, history)
            self._release(each, fleet, rules, history)
            self._run_round(each, fleet, rules, history)
        return "stopped: %s" % self.watch.reason

    def _release(self, each: Round, fleet: Fleet, rules: Rules, history: Sequence[Done]) -> None:
        """Release the nodes that no open work needs: their pods complete, and their GPUs become free.

        Nothing is released if a job over all nodes follows, which needs them.
        """
        if self.sweep["end"]:
            return
        lead = {name for name, member in self.members.items() if not member.rank}
        for node in self.planner.spare(fleet, rules, history, each, lead):
            self._released.add(node)
            self.members[node].channel.send({"seatrial": 1, "kind": "bye"})

    def _fleet(self) -> Fleet:
        """Return the sweep's nodes in order, then the unexpected ones; and the missing nodes."""
        with self.changed:
            names = [*self.sweep["nodes"], *sorted(set(self.members) - set(self.sweep["nodes"]))]
            gone = {node: "its agent did not connect" for node in names if node not in self.members}
            gone.update({node: "its pod is gone" for node, member in self.members.items() if not member.here})
            gone.update(dict.fromkeys(self._released, RELEASED))
        return self.planner.fleet(names, self.sweep["leaves"], gone)

    def _ranks(self) -> Dict[str, int]:
        with self.changed:
            return {node: member.rank for node, member in self.members.items()}

    def _print_fleet(self, fleet: Fleet, restored: int) -> None:
        self._fleets += 1
        data = {
            "nodes": list(fleet.nodes),
            "gone": dict(fleet.gone),
            "ranks": self._ranks(),
            "rails": {member.node: member.rails for member in self.members.values()},
            "restored": restored,
        }
        self.writer.stage("sweep.fleet.%d" % self._fleets, 0, data, "ok")
        self.writer.say("sweep: %d of %d nodes are connected" % (len(fleet.nodes) - len(fleet.gone), len(fleet.nodes)))

    def _run_round(self, each: Round, fleet: Fleet, rules: Rules, history: List[Done]) -> None:
        """Run a round, add it to the history and print it; drop it if the pod was terminated.

        An incomplete round does not count.
        """
        began = time.monotonic()
        what = "alone" if each.stage == 0 else "pair"
        doubted = self._doubted(fleet, rules, history) if each.stage else set()
        by_test = self._tests(each.tests, what, self.sweep["test_s"], doubted)
        if self.watch.stopped():
            return
        if each.stage == 0:
            self._without_nics(by_test)
            self._print_alone(by_test)
        results = {nodes: self.planner.result(nodes, by_test[nodes]) for nodes in each.tests}
        seconds = time.monotonic() - began
        self._round_s.append(seconds)
        history.append(self.planner.done(each, results, seconds))
        rows = [printed(nodes, results[nodes], by_test[nodes]) for nodes in each.tests]
        data = {"number": each.number, "stage": each.stage, "seconds": round(seconds, 1), "tests": rows}
        data["at"] = round(began - self._began, 1)
        self.writer.stage("sweep.round.%d" % each.number, seconds, data, "ok")
        self.writer.say("sweep: " + self.planner.progress(fleet, rules, history, self._round_s))

    def _print_alone(self, by_test: Dict[Nodes, Answers]) -> None:
        """Print DCGM's results and the training steps of each node alone, each on its own line."""
        for (node,), answers in by_test.items():
            for kind, ended in (("dcgm", self._diagnosed), ("training", self._trained)):
                told = answers.get(node, {}).get(kind)
                if isinstance(told, dict):
                    if not (
                        told.get("skipped") or told.get("stopped")
                    ):  # requested again when its other tests alone are repeated
                        ended.add(node)
                    number = self._printed[kind] = self._printed.get(kind, 0) + 1
                    self.writer.stage("sweep.%s.%d" % (kind, number), 0, dict(told, node=node), "ok")

    def _without_nics(self, by_test: Dict[Nodes, Answers]) -> None:
        """Drop results that most nodes cannot provide: not every fabric lets a node reach its own NICs.

        The majority is that of all nodes tested alone so far, because a round may have only one node.
        """
        alone = {node: answer for answers in by_test.values() for node, answer in answers.items() if "cards" in answer}
        self._reached_nics.update({node: answer["cards"] == fleettest.MEASURED for node, answer in alone.items()})
        failed = sum(not good for good in self._reached_nics.values())
        if len(self._reached_nics) >= min(MOST_OF, max(2, len(self.members))) and 2 * failed > len(self._reached_nics):
            for answer in alone.values():
                answer["rails"] = []
                answer["cards"] = fleettest.NOTHING

    def _doubted(self, fleet: Fleet, rules: Rules, history: Sequence[Done]) -> Set[str]:
        """Return the nodes that earlier rounds found at fault or left open: their next pairs also write over RDMA."""
        blame = self.planner.decode(fleet, rules, history)
        return {*blame.suspects, *(name for finding in blame.findings for name in finding.names)}

    def _tests(
        self, tests: Sequence[Nodes], what: str, limit_s: float, doubted: Collection[str] = ()
    ) -> Dict[Nodes, Answers]:
        """Run tests at once; return the results of each test's nodes."""
        ids: Dict[Nodes, int] = {}
        by_test: Dict[Nodes, Answers] = {}
        self._sent = {}
        longest, diagnosing_s = limit_s + SLACK_S, 0.0
        if what == "alone":
            longest += limit_s + (self.trial.training["limit_s"] if self.trial.training else 0)
        for nodes in tests:
            self._number += 2  # a node alone takes two ports
            members = [self.members[node] for node in nodes if node in self.members and self.members[node].here]
            if len(members) < len(nodes):
                by_test[nodes] = {
                    member.node: {"state": fleettest.STOPPED, "why": "a node is gone"} for member in members
                }
                continue
            ids[nodes] = self._number
            order = {"seatrial": 1, "kind": "test", "id": ids[nodes], "what": what, "count": len(nodes)}
            order["train"] = what == "alone" and nodes[0] not in self._trained
            if what == "alone" and self.trial.dcgm and members[0].diagnoses and nodes[0] not in self._diagnosed:
                order["diagnose"], diagnosing_s = True, self.trial.dcgm["limit_s"] + DIAGNOSED_S
            order.update(address=members[0].pod_ip, port=self._port(ids[nodes]), limit_s=limit_s)
            shared = [name for name in members[0].writes if name in members[-1].writes]
            if shared and self.trial.perftest and not set(nodes).isdisjoint(doubted):
                order["writes"] = shared
                longest = max(longest, limit_s + SLACK_S + self.trial.perftest["limit_s"])
            for rank, member in enumerate(members):
                self._sent[member.node] = member
                member.channel.send(dict(order, rank=rank))
        self._await(ids, time.monotonic() + longest + diagnosing_s)
        with self.changed:
            for nodes, number in ids.items():
                by_test[nodes] = {n: self.results[(number, n)] for n in nodes if (number, n) in self.results}
            self.results.clear()
        return by_test

    def _port(self, number: int) -> int:
        return self.trial.master_port + 1 + number % PORTS

    def _await(self, ids: Dict[Nodes, int], limit: float) -> None:
        """Wait for the results of all agents; stop those that wait for a failed or lost node."""
        stopped = set()
        with self.changed:
            while time.monotonic() < limit and not self.watch.stopped():
                waiting = False
                for nodes, number in ids.items():
                    here = [node for node in nodes if self._sent[node].here]
                    missing = [node for node in here if (number, node) not in self.results]
                    waiting = waiting or bool(missing)
                    why = self._trouble(nodes, number, here) if missing and number not in stopped else ""
                    if why:
                        stopped.add(number)
                        for node in missing:
                            self._sent[node].channel.send({"seatrial": 1, "kind": "stop", "id": number, "why": why})
                if not waiting:
                    return
                self.changed.wait(0.2)

    def _trouble(self, nodes: Nodes, number: int, here: Sequence[str]) -> str:
        """Return why a test can no longer succeed; '' if it can."""
        for node in nodes:
            answer = self.results.get((number, node))
            if answer is None and node not in here:
                return "%s is gone" % node
            if answer is not None and answer.get("state") != fleettest.MEASURED:
                return "%s: %s" % (node, answer.get("state"))
        return ""

    def _end(self, fleet: Fleet, rules: Rules, history: Sequence[Done]) -> str:
        """Run one job over all proven nodes, if there are more than two."""
        nodes = self.planner.decode(fleet, rules, history).proven
        nodes = tuple(node for node in nodes if node in self.members and self.members[node].here)
        if not self.sweep["end"] or len(nodes) < 3:
            return ""
        self.writer.say("sweep: one job over the %d nodes that passed" % len(nodes))
        began = time.monotonic()
        answers = self._tests([nodes], "end", 2 * self.sweep["test_s"])[nodes]
        row = printed(nodes, self.planner.result(nodes, answers), answers)
        row["asked"] = len(nodes)
        self.writer.stage("sweep.job", time.monotonic() - began, row, "ok")
        return ""


def _words(value: Any) -> List[str]:
    """Return the texts of a list that an agent has sent, bounded; none of anything else."""
    return [each[:40] for each in value if isinstance(each, str)][:64] if isinstance(value, list) else []
