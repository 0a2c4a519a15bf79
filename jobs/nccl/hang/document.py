"""Write the decision about a hang into a job's document: beside what its log says, or into a document of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...pod.nccl_reader.scan import read
from ..diagnosis.faults import found_fault
from ..diagnosis.ranking import rank
from ..document import conclude as conclude_logs
from ..job_document import MOST_CAUSES
from .apart import said_in, speakers, without
from .collect import structured
from .decide import decide
from .flight_recorder import gloo
from .join import join, processes, told, waits_in_creation
from .model import Evidence
from .unlike import unlike_calls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from ...pod.nccl_reader.state.partial import Partial
    from ..job_document import EvidenceLine
    from .join import Process as Spoken
    from .join import Tail
    from .model import Decision

Document = Any  # a job document and the keys of a hang


def conclude(
    found: list[Evidence], jobs: list[Document], partial: Partial | None = None, read_tail: Tail | None = None
) -> list[Document]:
    """Return the jobs with what the evidence says of their hang; each evidence is of one job.

    A hang makes ``no-go``; evidence that names none leaves ``inconclusive``, and never ``go``. ``partial``: what was
    read of the logs, and ``read_tail`` the last lines of one, to join a rank with its process and its last words.
    """
    if found == [Evidence()]:
        return jobs
    several = len(found) > 1
    told: list[Document] = []
    for evidence in found:
        own = [job for job in jobs if not several or set(job["files"]) & evidence.logs]
        jobs = [job for job in jobs if job not in own]
        told += _conclude(evidence, own, partial, read_tail)
    return told + jobs


def _conclude(
    evidence: Evidence, jobs: list[Document], partial: Partial | None, read_tail: Tail | None
) -> list[Document]:
    for job in jobs:
        if evidence.not_seen:
            job["not_seen"] = evidence.not_seen
    if not structured(evidence) and not evidence.lagging and not unlike_calls(evidence):
        return jobs
    files = {name for job in jobs for name in job["files"]}
    logged = processes(partial, files, one_job=bool(evidence.pods)) if partial is not None else {}
    if not structured(evidence):  # the log's own words: they say more of a hang that the log has already
        return _by_words(evidence, jobs, logged, read_tail)
    if len(jobs) > 1:
        silent = [job for job in jobs if _is_silent(job, _speaking(evidence))]
        evidence.files += [name for job in silent for name in job["files"]]
        jobs = [job for job in jobs if job not in silent]
    others: list[Document] = []
    if len(jobs) > 1 or (jobs and _larger(jobs[0], evidence)):  # which one the evidence is of, nothing tells
        theirs = {name for job in jobs for name in job["files"]}
        others = _by_words(said_in(evidence, theirs), jobs, logged, read_tail)
        evidence, jobs, logged = without(evidence, theirs), [], {}
    made = decide(evidence)
    waits_in_creation(made, logged)
    own = jobs[0] if jobs else _empty()
    _write(own, made, evidence, join(made, evidence, own, logged, read_tail))
    return [own, *others]


def _larger(job: Document, evidence: Evidence) -> bool:
    """Say whether a log is of more ranks than the dumps' default group has: another job's."""
    worlds = [group.members for group in evidence.groups.values() if group.name == "default_pg" and evidence.ranks]
    return any(members and (job["ranks"] or 0) > max(members) + 1 for members in worlds)


def _is_silent(job: Document, speaking: AbstractSet[str] = frozenset()) -> bool:
    """Say whether a log holds nothing of NCCL's: what torch wrote to standard error is in the evidence.

    ``speaking``: the files in which torch's reports are; what else fails there follows from them.
    """
    reports = job["diagnosis"] in ("crash", "hang") and not speaking.isdisjoint(job["files"])
    return bool((job["diagnosis"] == "no-evidence" or reports) and not job["nccl_lines"])


def _speaking(evidence: Evidence) -> set[str]:
    """Return the files in which torch's reports are."""
    return {file for _, file in speakers(evidence)} | {item.file for item in evidence.lagging}


def _by_words(
    evidence: Evidence, jobs: list[Document], logged: Mapping[int, Spoken], read_tail: Tail | None
) -> list[Document]:
    """Add what torch's words say to the job that hangs; of several jobs, each is told by the words of its own logs."""
    hanging = [job for job in jobs if job["diagnosis"] == "hang"]
    speaking = _speaking(evidence)
    silent = _by_folder([job for job in jobs if _is_silent(job, speaking)], evidence.named)
    groups = [[job] for job in hanging] or silent
    for group in groups:
        job, files = group[0], {name for each in group for name in each["files"]}
        own = said_in(evidence, files) if len(groups) > 1 else evidence
        made = decide(own)
        waits_in_creation(made, logged)
        if made.proven:
            _write(job, made, own, join(made, own, job, logged, read_tail))
            theirs = jobs if len(groups) == 1 else group
            jobs = [each for each in jobs if each is job or each not in theirs or not _is_silent(each, speaking)]
    return jobs


def _by_folder(jobs: list[Document], named: set[str]) -> list[list[Document]]:
    """Return the jobs by the folder that was named, in the order in which they come; each is one job's."""
    by_hang: dict[str, list[Document]] = {}
    for job in jobs:
        inside = [folder for folder in sorted(named) if job["files"] and job["files"][0].startswith(f"{folder}/")]
        by_hang.setdefault(inside[-1] if inside else "", []).append(job)
    return list(by_hang.values())


def _empty() -> Document:
    (made,) = conclude_logs(read([("", iter([b"\n"]))]))
    return {**made, "files": [], "advice": None}


def _write(job: Document, made: Decision, evidence: Evidence, places: dict[str, dict[str, Any]]) -> None:
    said = _unnamed(made) if made.unnamed and made.kind == "late" else _sentence(made)
    other = job["verdict"] == "no-go" and job["diagnosis"] not in ("hang", "crash")
    job["files"] = [*evidence.files, *job["files"]]
    job["late_ranks"] = sorted(made.late)
    job["waiting_ranks"] = sorted(made.waiting)
    job["dead_ranks"] = sorted(made.dead)
    job["unknown_ranks"] = sorted(made.unknown)
    job["stuck"] = {"group": made.group, "operation": made.operation, "sequence": made.sequence}
    job["contradictions"] = made.contradictions
    job["places"] = places
    dumped = max(evidence.world, default=-1) + 1
    world = dumped or max((sample.size for sample in evidence.samples), default=0)
    job["ranks"] = job["ranks"] or world or None
    job["unread"] = evidence.notes
    if evidence.not_seen:
        job["not_seen"] = evidence.not_seen
    job["faults"] = [item for item in job["faults"] if item["fault"] != "nccl.no-evidence"]
    extra = [*told(places, job["faults"]), *made.contradictions, *(f"not read: {note}" for note in evidence.notes[:3])]
    text = ". ".join([said, *(_first(item) for item in extra)]) + "."
    if made.proven:
        _add_fault(job, made, places)
        job["verdict"], job["hang"] = "no-go", True
        if not other:
            job["diagnosis"] = f"hang-{made.kind}"
        job["sentence"] = text + (f" The log: {job['sentence']}" if other else "")
    elif job["verdict"] == "no-go" or (made.kind in ("alive", "slow") and evidence.pods and job["verdict"] == "go"):
        job["sentence"] = (
            f"{job['sentence']} {text}"  # a running job's log was judged; that it goes on takes nothing away
        )
    else:
        job["verdict"] = "inconclusive"
        job["diagnosis"] = made.kind if made.kind in ("alive", "slow") else "hang-undecided"
        job["sentence"] = text
    job["advice"] = _advice(made, evidence, job) or job.get("advice")


def _add_fault(job: Document, made: Decision, places: dict[str, dict[str, Any]]) -> None:
    shown: list[EvidenceLine] = [{"file": file, "line": line, "text": text} for file, line, text in made.because]
    named = made.dead or made.late or made.suspects
    fault = found_fault(f"nccl.hang-{made.kind}", _ranks(named) if named else "the job", shown)
    fault["confirm"] = _confirm(fault["confirm"], places)
    rest = [cause for cause in job["causes"] if cause["fault"] not in ("nccl.hang", "nccl.no-evidence")]
    job["causes"] = [*rank([fault], {}), *rest][:MOST_CAUSES]
    job["faults"] = [fault, *(item for item in job["faults"] if item["fault"] != "nccl.hang")]


def _confirm(text: str, places: dict[str, dict[str, Any]]) -> str:
    """Return the command with the first rank's own process and pod."""
    place = next(iter(places.values()), {})
    if place.get("pid"):
        text = text.replace("--pid PID", f"--pid {place['pid']}")
    if place.get("pod"):
        text = text.replace("py-spy dump", f"kubectl exec {place['pod']} -- py-spy dump").replace(
            " POD ", f" {place['pod']} "
        )
    return text


def _ranks(ranks: set[int]) -> str:
    """Return 'rank 3', 'ranks 9 and 14', or the first of many."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 8:
        return f"ranks {', '.join(map(str, ordered[:8]))} and {len(ordered) - 8} more"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def _first(text: str) -> str:
    """Return a text with a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def _placed(made: Decision, ranks: set[int]) -> str:
    known = [
        f"{place.host}{f' GPU {place.gpu}' if place.gpu else ''}"
        for rank in sorted(ranks)[:4]
        if (place := made.places.get(rank)) is not None
    ]
    return f"{_ranks(ranks)} ({', '.join(known)})" if known else _ranks(ranks)


def _where(made: Decision) -> str:
    if made.operation is None:
        return "an operation that the evidence does not name"
    number = "" if made.sequence is None else f" {made.sequence}"
    return f"{made.operation}{number}" + (f" of {made.group}" if made.group else "")


def _sentence(made: Decision) -> str:  # noqa: PLR0911 -- one return per form
    """Return the first sentence, without its full stop, and what follows from it."""
    late, where = made.late, _where(made)
    many = len(late) > 1
    waits = (
        f"; {len(made.waiting)} other rank{'s wait' if len(made.waiting) != 1 else ' waits'}" if made.waiting else ""
    )
    whose = "their nodes" if many else "its node"
    if made.suspects and made.proven:
        return _either(made, waits)
    if made.kind == "late" and made.proven:
        return (
            (
                f"{_first(_placed(made, late))} never entered {where}{waits}. Look at "
                f"{'those processes' if many else 'that process'} before the fabric and the ranks that wait"
            )
            + (_NO_PAIRS if made.unrecorded else "")
            + _missing(made)
        )
    if made.kind == "stalled":
        who, queued = _first(_placed(made, late)), "hold up {}: their" if many else "holds up {}: its"
        return (
            f"{who} {queued.format(where)} work is queued, and the GPU"
            f" does not come to it{waits}. Look at {'those GPUs' if many else 'that GPU'} and {whose} first"
        ) + _missing(made)
    if made.kind == "dead":
        who = _placed(made, made.dead) if made.dead else ""
        names = ", ".join(f"process {p.pid} (GPU {p.gpu} of {p.host})" for p in made.nameless[:4])
        gone = " and ".join(part for part in (who, names) if part)
        whose_pod = "its pod and node" if len(made.dead) + len(made.nameless) == 1 else "their pods and nodes"
        return f"{_first(gone)} {'is' if len(made.dead) + len(made.nameless) == 1 else 'are'} dead or not answering{waits}. Look at {whose_pod} first"  # noqa: E501
    if made.kind == "inside":
        which = "those processes" if len(made.unknown) > 1 else "that process"
        lead = f", while all others left one: look at {which} first"
        sizes = f". Its sizes differ between ranks, {made.uneven}: splits that do not match hang like this"
        return (
            f"All ranks have entered {where}, and it does not finish: look at GPUs and network, no rank is late"
            + (sizes if made.uneven else "")
        ) + (_missing(made) + lead if made.unknown else "")
    if made.kind == "mismatch":
        what = "other operations or sizes" if many else "another operation or size"
        who = f"{_first(_placed(made, late))} called {what}" if late else "Ranks called different operations or sizes"
        called = f" ({made.called})" if made.called else ""
        return f"{who} in the place of {where}{called}{waits}. Which side is right, the program tells" + _missing(made)
    if made.kind == "order":
        return f"Ranks wait for one another in different operations (one is {where}): their order differs between ranks"
    if made.kind == "slow":
        return _slow(made)
    if made.kind == "alive":
        return "The job is alive: the counts of its operations advance between the samples. That proves no health"
    return _undecided(made)


def _undecided(made: Decision) -> str:  # noqa: PLR0911 -- one return per form
    """Return the first sentence where nothing is proven: what one look shows, and what another one would tell."""
    late, where = made.late, _where(made)
    counted = any("RAS: " in text for _, _, text in made.because)
    if made.moved:
        return (
            f"The job went on while these dumps were written, one after the other: {made.moved}. One look at each rank"
            " proves no hang: take a second dump of all ranks"
        )
    if made.undated:
        missing = late | made.suspects
        came = f"{_first(_placed(made, missing))} had not come" if missing else "Ranks waited and had come"
        return (
            f"{came} to {where} when these dumps were taken, and nothing tells when that was: {made.undated}. A job"
            " that runs looks like this for a moment: give a second dump of all ranks, some minutes later, or what the"
            " ranks wrote to standard error"
        ) + _missing(made)
    if made.passing is not None:
        behind = f", and {_placed(made, late)} had not come to {where}" if late else ""
        return (
            f"When these dumps were written, no rank had waited for longer than {made.passing:.1f} s{behind}: too early"
            " to tell a hang, one look only. Take a second dump of all ranks some minutes later, and give both"
        )
    if late:
        return f"{_first(_placed(made, late))} launched less than the others, but one sample does not prove a hang"
    if made.waiting and counted:
        return (
            f"{_first(_ranks(made.waiting))} launched more than the others, who may be late or only behind for a moment: "  # noqa: E501
            "one sample does not prove a hang, and RAS names the smaller side, whichever is at fault"
        )
    if made.unknown and made.waiting:
        return (
            f"{_first(_ranks(made.waiting))} wait{'' if len(made.waiting) > 1 else 's'}, the innermost in {where};"
            f" whether {_ranks(made.unknown)} came cannot be told"
        ) + _missing(made)
    if made.waiting and made.operation:
        return f"{_first(_ranks(made.waiting))} timed out in {where}; the evidence does not tell who is late"
    if any("launched equally many" in text for _, _, text in made.because):
        return (
            "All ranks launched equally many operations, the same in every sample: they are inside of one that does not"
            " finish (network, GPU, a process that spins), or nobody has called the next one yet. Dumps tell which"
        )
    return "This evidence does not tell whether the job hangs"


def _unnamed(made: Decision) -> str:
    """Say how many ranks are late where nothing says which."""
    return (
        f"{made.unnamed} rank{'s' if made.unnamed > 1 else ''} never entered {_where(made)}, and the text of NCCL RAS"
        " names none of them: ask it for JSON (ncclras -f json), or look at the Flight Recorder's dumps"
    )


_NO_PAIRS = ". gloo records no send and no receive: one of them may wait there for another rank"


def _slow(made: Decision) -> str:
    """Say whom the others wait for while the job goes on, by the times of kernels or by RAS."""
    who, many = _placed(made, made.late), len(made.late) > 1
    load = "(data loader, clocks, a GPU or host under load)"
    if any(file == "Inspector" for file, _, _ in made.because):
        return (
            f"{_first(who)} came last to every {made.operation} that all ranks recorded, and the others waited: look at"
            f" {'those processes' if many else 'that process'} first {load}, not at the network"
        )
    return (
        f"The job goes on, and {who} {'were' if many else 'was'} behind the others in every sample: if it is slower"
        f" than it should be, look there first {load}"
    )


def _either(made: Decision, waits: str) -> str:
    """Say who did not come, and why none of them is called late."""
    came = f"{_first(_ranks(made.suspects))} never entered {_where(made)}{waits}"
    if made.ahead:
        more = f"{_ranks(made.ahead)} called one operation more: the evidence does not tell which"
        return f"{came}. Either they are late, or {more}. Compare where the two sides stand" + _missing(made)
    return f"{came}. At least one of them is late{_NO_PAIRS}" + _missing(made)


def _missing(made: Decision) -> str:
    if not made.unknown - made.suspects:
        return ""
    return f". No dump is there of {_ranks(made.unknown - made.suspects)}: neither guilty nor cleared"


def _advice(made: Decision, evidence: Evidence, job: Document) -> str:
    """Return what was not switched on, or not given, and would have said more of this hang."""
    advice = []
    if not evidence.ranks or made.unknown - made.suspects:
        advice.append(
            "set TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1, and keep every rank's dump in one folder"
        )
    queued = [operation for made_by in evidence.ranks.values() for operation in made_by.pending]
    if made.kind == "inside" and queued and not gloo(evidence.ranks.values()) and not any(o.started for o in queued):
        advice.append(
            "set TORCH_NCCL_ENABLE_TIMING=1: a dump then tells whose GPU has not started what all have queued"
        )
    if not job["nccl_lines"]:
        advice.append(
            "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET, and keep the log of every rank"
        )
    if job["env"].get("NCCL_RAS_ENABLE") == "0":
        advice.append("leave NCCL_RAS_ENABLE alone: it is 0, and RAS says at once who is missing")
    elif len(evidence.samples) < 3 and not made.proven:
        advice.append("take three samples of ncclras some seconds apart")
    return "; ".join(advice)
