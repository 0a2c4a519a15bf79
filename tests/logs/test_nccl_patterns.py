"""The prefilter finds the same as the words and patterns behind it."""

from __future__ import annotations

import random
import re

import pytest

from seatrial.logs.reader.digest import MARK, Digester
from seatrial.logs.reader.events import foreign, signals, trouble
from seatrial.logs.reader.events.facts import effects_of
from seatrial.logs.reader.events.heads import Heads
from seatrial.logs.reader.events.kinds import CHANNEL_STARTS, KINDS
from seatrial.logs.reader.events.quiet import GATE, has_content, is_quiet, line_is_quiet
from seatrial.logs.reader.events.symptoms import SYMPTOMS, classify, may_show
from seatrial.logs.reader.lines.clean import ESCAPES, plain_lines
from seatrial.logs.reader.lines.patterns import DIGITS, HEX_DIGITS, AnyOf, Gate, Patterns, needed, parts_of
from seatrial.logs.reader.lines.prefix import parse_head, process_of
from seatrial.logs.reader.state.process import Source
from seatrial.logs.reader.tables.rows import TYPE
from tests.examples import rest_is_slow
from tests.logs.samples import samples
from tests.logs.test_nccl_blocks import LOGS

WORDS = (b"kill", b" pid ", b"Error: ", b"nccl=(", b"slots", b"#", b"usbw", b"] INFO ", b"e")


def test_any_word_is_found_and_nothing_else():
    """In the first texts each word is searched separately, in later ones one pattern finds them all."""
    rng = random.Random(1)
    for _ in range(300):
        sought = rng.sample(WORDS[:-1], 3)
        unless = {sought[0]: rng.choice((b"x", b" ", b"pid"))}
        words = AnyOf(sought, unless)
        for _ in range(250):
            text = b"".join(rng.choice((*WORDS, b"kil", b"Error:", b"x", b" ", b"pid")) for _ in range(4))
            stands = any(word in text for word in sought[1:]) or re.search(
                re.escape(sought[0]) + b"(?!" + re.escape(unless[sought[0]]) + b")", text
            )
            assert words.contained_in(text) == bool(stands), (sought, unless, text)


def test_the_lines_that_hold_a_word_are_found_in_the_first_text_as_in_later_ones():
    rng = random.Random(4)
    pieces = (b"kill", b"int\n", b"nan", b" it", b"\n", b"x", b"int", b"\n\n")
    words, unless = (b"kill", b"int\n", b"nan"), {b"nan": b" it"}
    for size in (6, 600):
        often = Gate(words, (AnyOf(words, unless),), unless)
        often.places(b"x" * 70_000, 0, 70_000)
        for _ in range(400):
            text = b"x\n" + b"".join(rng.choice(pieces) for _ in range(size)) + b"\n"
            start = text.find(b"\n", rng.randrange(len(text))) + 1  # of a line
            found = [gate.places(text, start, len(text)) for gate in (Gate(words, (), unless), often)]
            lines = [sorted({text.count(b"\n", 0, place) for place in places}) for places in found]
            assert lines[0] == lines[1], (text, start)
            assert found[0] == sorted(found[0])
            assert all(place >= start for place in found[0])


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (rb"no route|returned 113\b", (b"no route", b"returned 113")),
        (rb"(?:Got|Had) completion.*status", (b" completion",)),
        (rb"a(?:bc|de)+f?", (b"bc", b"de")),
        (rb"[Ff]ailed", (b"ailed",)),
        (rb"\x41bc\ndef?\.g\(h\)", (b".g(h)",)),
        (rb"no(?!where|never)(?P<what>where){2,3}(?:so|ever){0,9}", (b"where",)),
        (rb"(?:a|b*)c(?:ef(?:gh|ij)*|klm)", (b"ef", b"klm")),
    ],
)
def test_the_words_that_every_match_holds(pattern, literals):
    assert needed(pattern) == literals


@pytest.mark.parametrize(
    "pattern", [rb"a*", rb"\d+", rb"abc|\d", rb"(?i)abc", rb"(?i:abc)", rb"(?:abc)?", rb"(?=abc)", rb"(?:abc|d*)+"]
)
def test_a_pattern_without_such_words_is_refused(pattern):
    with pytest.raises(ValueError, match="no word"):
        needed(pattern)


@rest_is_slow(4)
def test_every_text_that_a_pattern_matches_holds_one_of_its_words(every):
    rng = random.Random(5)
    patterns = [*(item.pattern for item in SYMPTOMS), *(pattern for _, pattern in trouble.FAILURES)]
    for part in list(dict.fromkeys(part for pattern in patterns for part in parts_of(pattern)))[::every]:
        assert all(any(word in text for word in needed(part)) for text in samples(part, rng)), part


def test_the_words_that_a_text_holds_are_reported_by_whose_they_are():
    rng = random.Random(2)
    for _ in range(3000):
        sought = rng.sample(WORDS, 4)
        text = b"".join(rng.choice((*WORDS, b"kil", b"Error:", b"x", b" ", b"pid")) for _ in range(4))
        owners = Patterns((word, re.escape(word)) for word in sought).matches(text)
        assert set(owners) == {word for word in sought if word in text}, (sought, text)


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (rb"a|b", [b"a", b"b"]),
        (rb"a(?:b|c)|[|(]d\||e", [rb"a(?:b|c)", rb"[|(]d\|", b"e"]),
        (rb"[]|]a|[^]|]b|[\]|]", [rb"[]|]a", rb"[^]|]b", rb"[\]|]"]),
        (rb"", [b""]),
    ],
)
def test_a_pattern_is_made_of_its_alternatives(pattern, parts):
    assert parts_of(pattern) == parts


def test_the_patterns_that_a_text_matches_are_those_that_are_searched_for_one_by_one():
    patterns = [(at, item.pattern) for at, item in enumerate(SYMPTOMS)]
    table, texts = Patterns(patterns), [word + b" " + other for item in SYMPTOMS for word, other in pairs(item.words)]
    for text in texts:
        matches = dict.fromkeys(table.matches(text))
        assert list(matches) == [at for at, pattern in patterns if re.search(pattern, text)], text


def pairs(literals):
    """Return each word paired with a different one."""
    all_literals = [word for item in SYMPTOMS for word in item.words]
    return [(word, all_literals[sum(word) % len(all_literals)]) for word in literals]


def test_every_symptom_is_found_by_the_shape_of_its_words():
    for item in SYMPTOMS:
        assert item.words
        assert all(may_show(word.translate(HEX_DIGITS)) for word in item.words)


def messages():
    """Return the texts after NCCL INFO in the logs, and variants with a number or a pointer attached."""
    for path in LOGS:
        for raw in path.read_bytes().split(b"\n"):
            text = raw.partition(b"NCCL INFO ")[2]
            if text:
                yield text
                yield re.sub(rb"(?<=0x)[0-9a-f]+", b"7f3bde01ac", text)
                yield re.sub(rb"\d", b"7", text)


def test_a_shape_that_says_nothing_represents_no_message_that_says_something():
    for text in messages():
        if is_quiet(text.translate(HEX_DIGITS)):
            assert KINDS.get(text[:4]) is not None or effects_of(text) == (), text
            assert text[:4] not in CHANNEL_STARTS


def test_a_message_shows_the_first_symptom_that_its_text_matches():
    for text in {text[:300] for text in messages()}:
        assert classify(text) is next((item for item in SYMPTOMS if re.search(item.pattern, text)), None), text


def test_the_lines_of_a_stretch_that_say_something_are_those_that_do_one_by_one():
    """The result does not depend on the stretch's length, earlier reads, neighbours, or the NCCL line that ends it."""
    digester = Digester()
    rng, nccl = random.Random(7), b"gpu-node-0:1000:1000 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>"
    pool = sorted({raw for path in LOGS for raw in path.read_bytes().split(b"\n") if b"NCCL INFO " not in raw})
    filling = [
        b"",
        b"loaded tokenizer in %d s",
        b"x" * 3000,
        b"a  b int",
        b"\r 12%% of float32 |",
        b"#",
        b"nan iterations: 0",
        b"bind: errno: 11 (in use)",
        b"bind: errno: 98 (in use)",
    ]
    for size, times in ((1, 20), (5, 20), (60, 20), (3000, 4)):
        for _ in range(times):
            lines = [rng.choice(rng.choice((pool, filling, filling, [nccl]))) for _ in range(size)]
            events = digester.digest(b"".join(line + b"\n" for line in lines)).events
            lines = [ESCAPES.sub(b"", line) for line in lines]
            said = [(at, line) for at, line in enumerate(lines) if MARK not in line and has_content(line)]
            assert [(number, raw) for number, place, _, raw in events if place < 0 and MARK not in raw] == said


def test_a_shape_of_other_lines_that_is_quiet_represents_none_that_passes_the_gate():
    rng = random.Random(7)
    for path in LOGS:
        for raw in path.read_bytes().split(b"\n"):
            if line_is_quiet(raw.translate(DIGITS)) and not GATE.places(raw + b"\n", 0, len(raw) + 1):
                line = re.sub(rb"\d", lambda _: b"%d" % rng.randrange(10), raw)
                assert not GATE.places(line + b"\n", 0, len(line) + 1), line


def test_lines_lose_their_colours_however_long_the_log():
    rng, parts = (
        random.Random(5),
        (b"\x1b[31m", b"\x1b]0;title\x07", b"\x1b]0;\n", b"\x1b", b"\r\n", b"\r", b"\n", b"m", b"x" * 999),
    )
    for size in (0, 9, 3000):
        data = b"".join(rng.choices(parts, k=size))
        assert plain_lines(data) == ESCAPES.sub(b"", data.replace(b"\r\n", b"\n"))


def test_what_looks_at_lines_in_detail_is_found_before():
    """Relevant words and type names between any neighbours, in short and long texts."""
    names = b"float half double bfloat16 int int8 int32 int64 uint8 uint64 char uchar float16 float8_e4m3 fp8_e5m2 f8_e4m3fn fp8_x"
    beside = [bytes((byte,)) for byte in range(256) if re.match(rb"[\s,;|]", bytes((byte,)))]
    rows = [left + name + right for name in names.split() for left in beside for right in (*beside, b"")]
    assert all(TYPE.search(row) for row in rows)
    for text in (*rows, *signals.MATTERS):
        if signals.UNLESS.get(text) is None:
            assert GATE.places(text + b"\n", 0, len(text) + 1), text
            assert GATE.places(b"a\n" * 2000 + text + b"\n", 0, len(text) + 4001), text


def test_lines_that_are_passed_over_say_nothing():
    """All lines of the logs without a result are read by a parser that expects nothing."""
    source = Source("x")
    reader = signals.SignalReader(source, 0)
    for path in LOGS:
        for raw in path.read_bytes().split(b"\n"):
            if not foreign.says(raw):
                reader.line(raw, 1)
    assert not source.events
    assert not reader.expects()


# Lines of proxy.cc and of RCCL that begin like quiet ones but are relevant.
WARNED_OF = (rb"\[Proxy [sS]ervice\] Too many connections", b"Allocation failed at ")


@rest_is_slow(4)
def test_no_symptom_is_hidden_by_the_gates_in_front_of_it(every):
    """Texts of every alternative of every symptom, as an NCCL message and, where it counts, as a separate line.

    Each has its own seed, so that a new line does not change the existing texts.
    """
    unseen = []
    for item in SYMPTOMS[::every]:
        for part in parts_of(item.pattern):
            texts = list(samples(part, random.Random(part)))
            assert texts, part
            for text in texts:
                own = item.nccls and part not in WARNED_OF
                assert not own or not is_quiet(text.translate(HEX_DIGITS)), text
                source = Source("x")
                signals.SignalReader(source, 0).line(text, 1)
                if any(what.startswith("symptom ") for what in source.events):
                    passes = GATE.places(text + b"\n", 0, len(text) + 1) and has_content(text)
                    unseen += [] if passes else [(item.fault, part, text)]
    assert not unseen


FRONTS = (
    b"",
    b"2026-01-02T03:04:%02d.%06dZ ",
    b"[pod/job-worker-%d/main] 2026-01-02T03:04:%02d.1Z ",
    b"[2026-01-02 03:04:%02d] ",
    b"[1,%d]<stdout>: ",
    b"2026-01-02T03:04:%02d+00:00 %d: ",
    b"  %d: ",
    b"[default%d]: 03:%02d ",
    b"(RayWorker pid=%d, ip=10.0.0.%d) ",
    b"[%d;31m ",
    b"\x1b[%dm ",
    b"262144 8192 float8_e4m%d ",
    b"step %d of %d NCCL ",
)
HEADS = (b"gpu-%d:10%d:1 [3] ", b"<host%d>:7%d:1 [0] ", b"[%d] ", b"[default%d]:gpu-1:1%d:1 [0] ", b"")


@pytest.mark.parametrize("seed", range(8))
def test_a_head_is_read_the_same_however_many_were_seen_before(seed):
    """Prefix forms are cached without changing the result."""
    rng, heads = random.Random(seed), Heads()

    def filled(form: bytes) -> bytes:
        return re.sub(rb"%\d*d", lambda _: b"%d" % rng.randrange(100), form)

    for _ in range(2000):
        left = filled(rng.choice(FRONTS)) + filled(rng.choice(HEADS))
        (read_head, again), (fresh, once) = heads.find(left), Heads().find(left)
        assert ((read_head and read_head.head), again) == ((fresh and fresh.head), once), left
        if read_head is not None:
            assert (read_head.head, read_head.process) == (parse_head(left), process_of(parse_head(left))), left
