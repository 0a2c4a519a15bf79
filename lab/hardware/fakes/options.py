"""The command line of torchrun.

torchrun's own options (dashes or underscores, also from the PET_* variables), then the script, the word that selects
the bench's program, and that program's options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class UsageError(Exception):
    """An invalid command line."""


class Options(NamedTuple):
    """A job's options on this node."""

    nodes: int
    local: int
    node: int
    address: str
    port: int
    timeout_s: float | None
    script: str
    program: str
    bench: dict[str, Any]


_WITH_VALUE = {
    "nnodes",
    "nproc_per_node",
    "node_rank",
    "master_addr",
    "master_port",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "max_restarts",
    "monitor_interval",
    "start_method",
    "role",
    "log_dir",
    "r",
    "redirects",
    "t",
    "tee",
    "local_ranks_filter",
    "local_addr",
    "log_line_prefix_template",
    "event_log_handler",
    "logs_specs",
}
_FLAGS = {"standalone", "m", "module", "no_python", "run_path", "virtual_local_rank", "use_agent_store"}
_BENCH: dict[str, Any] = {
    "min_bytes": 1 << 20,
    "max_bytes": 8 << 30,
    "factor": 2,
    "iters": 20,
    "warmup": 5,
    "cycles": 1,
    "op": "all_reduce",
    "rails": 0,
    "alone": 0,
    "steps": 40,
    "soak": 0,
    "seed": 1,
}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "sendrecv", "broadcast")


def parse(arguments: list[str], env: Mapping[str, str]) -> Options:
    """Parse the command line.

    Raises `UsageError` for an unknown option, a missing script or a value that is not a number.
    """
    given = {name[4:].lower(): value for name, value in env.items() if name.startswith("PET_")}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        name = name.replace("-", "_")
        if name in _FLAGS:
            given[name] = "1"
        elif name in _WITH_VALUE:
            if not equals:
                if not rest:
                    raise UsageError(f"argument --{name}: expected one argument")
                value = rest.pop(0)
            given[name] = value
        else:
            raise UsageError(f"unrecognized arguments: --{name}")
    if not rest:
        raise UsageError("the following arguments are required: training_script, training_script_args")
    script = rest.pop(0)
    try:
        return _options(given, script, rest)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _options(given: Mapping[str, str], script: str, arguments: list[str]) -> Options:
    address, port = given.get("master_addr", "127.0.0.1"), int(given.get("master_port", "29500"))
    endpoint = given.get("rdzv_endpoint", "")
    if endpoint:
        address, _, number = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "29400")
        port = int(number)
    if given.get("standalone"):
        address, port = "127.0.0.1", 0
    conf = dict(pair.partition("=")[::2] for pair in given.get("rdzv_conf", "").split(",") if pair)
    timeout = conf.get("join_timeout") or conf.get("timeout")
    nodes = given.get("nnodes", "1").rpartition(":")[2]
    local = given.get("nproc_per_node", "1")
    return Options(
        nodes=int(nodes),
        local=8 if local in ("gpu", "auto") else int(local),
        node=int(given.get("node_rank", "0")),
        address=address,
        port=port,
        timeout_s=float(timeout) if timeout else None,
        script=script,
        program=arguments[0] if arguments and not arguments[0].startswith("-") else "",
        bench=_bench(arguments),
    )


def _bench(arguments: list[str]) -> dict[str, Any]:
    """Parse the script's options: those of the bench; options of other scripts are ignored."""
    bench, rest = dict(_BENCH), list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word.startswith("--") and name in bench:
            if not equals:
                if not rest:
                    raise ValueError(f"argument --{name}: expected one argument")
                value = rest.pop(0)
            bench[name] = int(value) if name != "op" else value
    if bench["op"] not in OPERATIONS:
        raise ValueError(f"argument --op: invalid choice: {bench['op']!r}")
    return bench
