"""`python -m lab SCENARIO --write-kubeconfig FILE`: serve a scenario until it is stopped.

It stops on SIGINT, SIGTERM or, with --until-stdin-closes, when the starting process has ended. Exit codes: 0 stopped as
requested, 4 wrong usage (one line on standard error), 1 the cluster could not be started.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .chaos.api_faults import KINDS, ApiFaults
from .scenario import Scenario, ScenarioError, load, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .cluster import Cluster

USAGE = 4


class Parser(argparse.ArgumentParser):
    """A parser that reports errors in one line and exits with the code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Report the error and exit."""
        self.exit(USAGE, f"{self.prog}: {message}\n")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser(
        prog="seatrial sim",
        description="A Kubernetes cluster with GPUs in a box.",
        epilog="Examples:\n\n  seatrial sim --list\n  seatrial sim --list rdma\n"
        "  seatrial sim healthy --write-kubeconfig sim.kubeconfig\n"
        "  seatrial sim gpu-missing --api-faults stale:7 --write-kubeconfig FILE",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
    )
    parser.add_argument(
        "scenario",
        nargs="?",
        help="a shipped one (default: healthy), the path of one, or replay=FILE; with --list a word",
    )
    parser.add_argument("--list", action="store_true", help="show the scenarios, or those in which a word occurs")
    parser.add_argument(
        "--api-faults", "--weather", metavar="NAME[:SEED]", help=f"faults of the API server: {', '.join(KINDS)}"
    )
    parser.add_argument("--write-kubeconfig", metavar="FILE", type=Path, help="for the scenario's user")
    parser.add_argument("--write-nobody-kubeconfig", metavar="FILE", type=Path, help="for one without rights")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end when standard input does")
    parser.add_argument("--network", choices=("auto", "namespaces", "plain"), default="auto", help="of the pods")
    options = parser.parse_args(arguments)
    if not options.list:
        options.scenario = options.scenario or "healthy"
        if not options.write_kubeconfig:
            parser.error("--write-kubeconfig FILE is needed: it is how clients find the cluster")
        for path in filter(None, (options.write_kubeconfig, options.write_nobody_kubeconfig)):
            if path.is_dir() or not path.absolute().parent.is_dir():
                parser.error(f"{path}: {'is a folder' if path.is_dir() else 'its folder does not exist'}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a scenario, or list scenarios."""
    options = parse(arguments)
    try:
        if options.list:
            print(listing(options.scenario, as_json=options.json))
            return 0
        scenario = load(options.scenario)
        if options.api_faults is not None:
            scenario = scenario.under(ApiFaults.parse(options.api_faults))
        return asyncio.run(_serve(scenario, options))
    except ScenarioError as error:
        print(f"seatrial sim: {error}", file=sys.stderr)
        return USAGE
    except (
        OSError,
        RuntimeError,
    ) as error:  # RuntimeError includes NetworkError, whose import would slow down the list
        print(f"seatrial sim: cannot start: {error}", file=sys.stderr)
        return 1


def listing(word: str | None = None, *, as_json: bool) -> str:
    """Return the shipped scenarios by family, those that contain a word, or the one with that name.

    Raises ScenarioError without a match.
    """
    known = [load(name) for name in names()] if word is None or not _is_one(word) else [load(word)]
    if word is not None and not _is_one(word):
        known = [each for each in known if word.lower() in _searched(each)]
        if not known or as_json:
            known = [load(word)]  # raises with the nearest name
    if as_json:
        return json.dumps([scenario.summary() for scenario in known], indent=1)
    width = max(len(scenario.name) for scenario in known)
    families: dict[str, list[str]] = {}
    for each in known:
        row = f"  {each.name:<{width}}  {each.title}{' *' if each.run else ''}"
        families.setdefault(_family(each), []).append(row)
    lines = [
        line for name in sorted(families, key=lambda name: (name != HEALTHY, name)) for line in _block(name, families)
    ]
    if word is None:
        lines += ["replay=FILE: healthy, but the collective prints that recorded log", ""]
    if any(each.run for each in known):
        lines += ["* needs its own profile or options, which seatrial rehearse supplies"]
    return "\n".join(lines).rstrip()


HEALTHY = "nothing is broken"


def _block(name: str, families: Mapping[str, list[str]]) -> list[str]:
    return [f"{name} ({len(families[name])})", *families[name], ""]


def _is_one(word: str) -> bool:
    """Return whether a word names a scenario, and is not a search term."""
    return word in names() or "/" in word or word.endswith((".yaml", ".yml")) or "=" in word


def _family(scenario: Scenario) -> str:
    """Return the family of the first expected fault."""
    return scenario.faults[0].partition(".")[0] if scenario.faults else HEALTHY


def _searched(scenario: Scenario) -> str:
    return " ".join((scenario.name, scenario.title, scenario.breaks, *scenario.faults)).lower()


async def _serve(scenario: Scenario, options: argparse.Namespace) -> int:
    from .cluster import Cluster  # noqa: PLC0415 - a wrong name of a scenario is answered without it

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.until_stdin_closes:
        threading.Thread(target=_read_to_end, args=(loop, stop), daemon=True).start()
    async with await Cluster.start(scenario, network=options.network) as cluster:
        write(options.write_kubeconfig, cluster.kubeconfig)
        if options.write_nobody_kubeconfig:
            write(options.write_nobody_kubeconfig, cluster.nobody_kubeconfig)
        print(_ready(cluster, options), flush=True)
        await stop.wait()
    return 0


def _read_to_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Wait in a thread: an event loop cannot wait for every kind of standard input."""
    while os.read(0, 65536):
        pass
    loop.call_soon_threadsafe(stop.set)


def write(path: Path, text: str) -> None:
    """Write a file that only its owner may read, atomically; a device or a pipe is written to directly."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()  # it holds credentials
        raise


def _ready(cluster: Cluster, options: argparse.Namespace) -> str:
    scenario = cluster.scenario
    if options.json:
        return json.dumps(
            {
                "ready": True,
                "scenario": scenario.name,
                "platform": scenario.platform,
                "server": cluster.server,
                "namespace": "default",
                "network": cluster.network,
                "lost": list(cluster.lost),
                "api_faults": str(scenario.api_faults) if scenario.api_faults else None,
                "run": {"profile": "profile" in scenario.run, "options": scenario.run.get("options", [])},
            }
        )
    lost = "".join(f"\n  lost: {text}" for text in cluster.lost)
    under = f" under API faults {scenario.api_faults}" if scenario.api_faults else ""
    own = ["its own profile"] * ("profile" in scenario.run) + list(scenario.run.get("options", []))
    if own:
        lost += f"\n  is meant to run with {' '.join(own)}: seatrial rehearse {scenario.name}"
    return (
        f"{scenario.name} ({scenario.title}){under} is ready at {cluster.server}{lost}\n"
        f"  export KUBECONFIG={options.write_kubeconfig.absolute()}\n  Ctrl-C stops it"
    )


if __name__ == "__main__":
    sys.exit(main())
