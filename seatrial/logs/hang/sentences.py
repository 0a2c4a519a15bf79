"""The first sentence of a hang: cause, waiting ranks, and the place to examine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .counts import ONE_SAMPLE
from .subcommunicators import UNCLEAR

if TYPE_CHECKING:
    from .model import Decision, Evidence, Ranks


def ranks_in_words(ranks: Ranks) -> str:
    """Return 'rank 3', 'ranks 9 and 14', or the first of many."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    if len(ordered) > 8:
        return f"ranks {', '.join(map(str, ordered[:8]))} and {len(ordered) - 8} more"
    return f"ranks {', '.join(map(str, ordered[:-1]))} and {ordered[-1]}"


def capital(text: str) -> str:
    """Return a text with a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]


def _placed(made: Decision, ranks: Ranks) -> str:
    known = [
        f"{place.host}{f' GPU {place.gpu}' if place.gpu else ''}"
        for rank in sorted(ranks)[:4]
        if (place := made.places.get(rank)) is not None
    ]
    return f"{ranks_in_words(ranks)} ({', '.join(known)})" if known else ranks_in_words(ranks)


def _with_nameless(made: Decision, ranks: Ranks) -> str:
    """Return these ranks with their places, and the processes of unknown rank."""
    unidentified = "a process that left no dump" if made.uncounted else "a process"
    names = [f"process {p.pid} (GPU {p.gpu} of {p.host})" if p.pid else unidentified for p in made.nameless[:4]]
    more = [f"{len(made.nameless) - 4} more processes"] if len(made.nameless) > 4 else []
    return " and ".join(part for part in (_placed(made, ranks) if ranks else "", ", ".join(names + more)) if part)


def _where(made: Decision) -> str:
    group, operation, sequence = made.at
    if operation is None:
        return "an operation that the evidence does not name"
    return operation + ("" if sequence is None else f" {sequence}") + (f" of {group}" if group else "")


def sentence(made: Decision) -> str:  # noqa: PLR0911 -- one return per form
    """Return the first sentence, without its full stop, and its consequence."""
    late, where = made.late, _where(made)
    many = len(late) + len(made.nameless) > 1
    waits = (
        f"; {len(made.waiting)} other rank{'s wait' if len(made.waiting) != 1 else ' waits'}" if made.waiting else ""
    )
    hosts = "their nodes" if many else "its node"
    if made.kind == "watchdog":
        return _watchdog(made)
    if made.suspects and made.proven:
        return _either(made, waits)
    if made.kind == "late" and made.proven:
        return _late(made, waits)
    if made.kind == "stalled":
        subject, queued = capital(_placed(made, late)), "hold up {}: their" if many else "holds up {}: its"
        return (
            f"{subject} {queued.format(where)} work is queued, and the GPU"
            f" does not start it{waits}. Look at {'those GPUs' if many else 'that GPU'} and {hosts} first"
        ) + _missing(made)
    if made.kind == "dead":
        gone, single = _with_nameless(made, made.dead), len(made.dead) + len(made.nameless) == 1
        state, pods = ("is dead or does", "its pod and node") if single else ("are dead or do", "their pods and nodes")
        return f"{capital(gone)} {state} not answer{waits}. Look at {pods} first"
    if made.kind == "inside":
        which = "those processes" if len(made.unknown) > 1 else "that process"
        lead = f", but all others left one: look at {which} first"
        sizes = f". Its sizes differ between ranks, {made.called}: splits that do not match hang like this"
        return (
            f"All ranks have entered {where}, and it does not finish: no rank is late, examine GPUs and network"
            + (sizes if made.called else "")
        ) + (_missing(made) + lead if made.unknown else "")
    if made.kind == "mismatch":
        what = "other operations or sizes" if many else "another operation or size"
        subject = (
            f"{capital(_placed(made, late))} called {what}" if late else "Ranks called different operations or sizes"
        )
        called = f" ({made.called})" if made.called else ""
        return f"{subject} in place of {where}{called}{waits}. The program shows the correct side" + _missing(made)
    if made.kind == "order" and late:
        them, calls = ("them", "their calls differ") if many else ("it", "its calls differ")
        subject = f"{capital(_placed(made, late))} wait{'' if many else 's'} in {made.called}"
        return f"{subject} for ranks that wait in {where} for {them}{waits}: {calls} from theirs in order or number"
    if made.kind == "order":
        return f"Ranks wait for one another in different operations (one is {where}): their order differs between ranks"
    if made.kind == "slow":
        return _slow(made)
    if made.kind == "alive":
        return "The job is alive: the counts of its operations advance between the samples. This does not prove health"
    return _undecided(made)


def _late(made: Decision, waits: str) -> str:
    """Name the late ranks, and the operation that they did not enter."""
    late, where = made.late, _where(made)
    them = "those processes" if len(late) + len(made.nameless) > 1 else "that process"
    if made.departed:
        left = f"{capital(_placed(made, late))} left {made.at.group} or never created it"
        return f"{left}{waits} in it. Look at {them} first"
    subject = capital(_with_nameless(made, late))
    if made.seconds:
        return (
            f"{subject} entered {where} {made.seconds:.1f} s after the first rank, which had timed out{waits}. Look at"
            f" the preceding calls of {them}, not at the network"
        ) + _missing(made)
    never = f"{subject} never entered {where}{waits}. Look at {them} first, not at the fabric or the waiting ranks"
    return never + made.unsure + _missing(made)


def _undecided(made: Decision) -> str:  # noqa: PLR0911 -- one return per form
    """Return the first sentence if nothing is proven: the facts of one sample, and the use of another one."""
    late, where = made.late, _where(made)
    counted = any("RAS: " in text for _, _, text in made.because)
    if made.reported:
        remote = any("Remote" in text for text in made.reported)
        remote_first = (
            ". The others see a remote error: look at the first rank named" if len(made.reported) > 1 and remote else ""
        )
        return f"NCCL RAS reports errors: {'; '.join(made.reported[:4])}{remote_first}"
    if made.doubt and made.doubt.kind == "moved":
        return (
            f"The job continued while these dumps were written one after the other: {made.doubt.text}. One dump per"
            " rank proves no hang: take a second dump of all ranks"
        )
    if made.doubt and made.doubt.kind == "undated":
        missing = late | made.suspects
        never_entered = (
            f"{capital(_placed(made, missing))} had not reached" if missing else "Ranks waited and had reached"
        )
        them = "those processes" if len(missing) > 1 else "that process"
        first = f"If a time-out wrote them, look at {them} first; a" if missing else "A"
        return (
            f"{never_entered} {where} when these dumps were taken, at an unknown time: {made.doubt.text}. {first} job"
            " that runs can look like this for a moment: add a second dump of all ranks, taken some minutes later, or"
            " the ranks' standard error"
        ) + _missing(made)
    if made.doubt:
        behind = f", and {_placed(made, late)} had not reached {where}" if late else ""
        return (
            f"When these dumps were written, no rank had waited for longer than {made.doubt.text} s{behind}:"
            f" too early to determine a hang from one dump per rank. Take a second dump of all ranks some minutes"
            f" later, and pass both"
        )
    if (late or made.suspects) and made.departed:
        return (
            f"{capital(_placed(made, late or made.suspects))} left the communicator of all ranks, or never created it,"
            " which others are still in. One sample may be of the job's end: take another one, some seconds later"
        )
    if (late or made.nameless) and counted:
        why = "one sample does not prove a hang" if "one sample" in made.because[-1][2] else UNCLEAR
        return f"{capital(_with_nameless(made, late))} launched less than the others, but {why}"
    if made.suspects and counted:
        return f"{capital(ranks_in_words(made.suspects))} launched less than the others, but {UNCLEAR}"
    if late:
        return f"{capital(_placed(made, late))} had not reached {where}, and it is not proven that this lasts"
    if made.waiting and counted:
        return (
            f"{capital(ranks_in_words(made.waiting))} launched more than the others, which may be late or behind only for a moment: "  # noqa: E501
            "one sample does not prove a hang, and RAS names the smaller set, whichever is at fault"
        )
    if made.uncounted:
        return (
            f"{capital(ranks_in_words(made.waiting))} all entered {where}, and it does not finish. These dumps do not"
            f" show how many ranks the job has: a rank without a dump may be late or dead"
        )
    if made.unknown and made.waiting:
        return (
            f"{capital(ranks_in_words(made.waiting))} wait{'' if len(made.waiting) > 1 else 's'}, the innermost in"
            f" {where}; whether {ranks_in_words(made.unknown)} entered it cannot be determined"
        ) + _missing(made)
    if made.waiting:
        what = f"timed out in {where}" if made.at.operation else "waited for others"
        return f"{capital(ranks_in_words(made.waiting))} {what}; the evidence does not show the late rank"
    return _by_ras(made) or "This evidence does not show whether the job hangs" + _missing(made)


def _by_ras(made: Decision) -> str:
    """Return RAS's result for ranks with equal counts; empty without one."""
    if any(text == ONE_SAMPLE for _, _, text in made.because):
        return (
            "NCCL RAS reports no error, and that alone proves nothing: ranks inside one operation have"
            " equal counts. Two more answers, some seconds apart, show whether the counts advance" + _missing(made)
        )
    if any("launched equally many" in text for _, _, text in made.because):
        return (
            "All ranks launched equally many operations, the same in every sample: they are inside one that does not"
            " finish (network, GPU, a spinning process), or no rank has called the next one yet. Dumps distinguish the"
            " two"
        )
    return ""


def _watchdog(made: Decision) -> str:
    """Name the ranks with a blocked watchdog, without calling any rank late."""
    return (
        f"{_still(made.suspects, made.seconds)}. No operation timed out, so the late rank cannot be determined: compare"
        " the stacks of all ranks, with native frames"
    )


def _still(ranks: Ranks, seconds: float) -> str:
    return (
        f"The NCCL watchdog of {ranks_in_words(ranks) if ranks else 'a rank'} did not run for {seconds} s: a CUDA or"
        " NCCL call does not return, or another thread holds Python's lock (GIL)"
    )


def blocked_watchdogs(evidence: Evidence) -> str:
    """Name the ranks with a blocked watchdog while others saw a time-out; empty without one.

    It may be the rank that the others wait for, or one that cannot abort the operation that they aborted.
    """
    waited = {event.rank for event in evidence.timeouts}
    blocked = [item for item in evidence.said("blocked") if item.rank not in waited]
    if not blocked or not waited:
        return ""
    ranks = {rank for item in blocked for rank in item.ranks}
    stacks = "its stack" if len(blocked) == 1 else "their stacks"
    return f"{_still(ranks, max(item.seconds for item in blocked))}: look at {stacks}, with native frames, too"


def unnamed(made: Decision) -> str:
    """Return the number of late ranks if the evidence does not identify them."""
    return (
        f"{made.unnamed} rank{'s' if made.unnamed > 1 else ''} never entered {_where(made)}, and the text of NCCL RAS"
        " names none of them: ask it for JSON (ncclras -f json), or look at the Flight Recorder's dumps"
    )


def _slow(made: Decision) -> str:
    """Name the ranks that the others wait for while the job continues, by the times of kernels or by RAS."""
    subject, many = _placed(made, made.late), len(made.late) > 1
    load = "(data loader, clocks, a GPU or host under load)"
    if any(file == "Inspector" for file, _, _ in made.because):
        return (
            f"{capital(subject)} came last to every {made.at.operation} that all ranks recorded, and others waited:"
            f" look at {'those processes' if many else 'that process'} first {load}, not at the network"
        )
    return (
        f"The job continues, and {subject} {'were' if many else 'was'} behind the others in every sample: if it is"
        f" slower than it should be, look there first {load}"
    )


def _either(made: Decision, waits: str) -> str:
    """Name the missing ranks, and explain why none of them is called late."""
    never_entered = f"{capital(ranks_in_words(made.suspects))} never entered {_where(made)}{waits}"
    if made.ahead:
        more = f"{ranks_in_words(made.ahead)} called one operation more: the evidence does not show which"
        return f"{never_entered}. Either they are late, or {more}. Compare the stacks of the two sides" + _missing(made)
    if made.inside_of:
        return (
            f"{never_entered}. Either one of them is late, or they wait together in an operation of {made.inside_of},"
            " which all of them launched: compare their stacks, and look at their GPUs"
        )
    return f"{never_entered}. At least one of them is late{made.unsure}" + _missing(made)


def _missing(made: Decision) -> str:
    if not made.unknown - made.suspects:
        return ""
    if made.inside_of:
        return f". {capital(ranks_in_words(made.unknown))} may be late, or only wait together in {made.inside_of}"
    return f". There is no dump of {ranks_in_words(made.unknown - made.suspects)}: neither late nor cleared"
