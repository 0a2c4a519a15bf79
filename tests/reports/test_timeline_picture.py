"""The time line on the page, for records from any source."""

from reports.timeline import MOST_NODES, timeline

SPAN = {"node": "n", "phase": "runtime", "start_s": 0.0, "seconds": 2.0}


def test_names_of_a_record_are_escaped_and_pods_bounded():
    spans = [{**SPAN, "node": f"<b>{number}", "phase": "collective.<i>"} for number in range(500)]
    text = timeline(spans)
    assert "<b>" not in text
    assert "<i>" not in text
    assert text.count("title=") == MOST_NODES


def test_the_table_adds_up_what_the_picture_shows():
    """A phase that occurred twice, as after a restart, is one number."""
    text = timeline([SPAN, {**SPAN, "start_s": 3.0, "seconds": 0.5}])
    assert "<td>2.5</td>" in text


def test_nothing_reported_is_nothing_drawn():
    assert timeline([]) == ""
    assert timeline([{**SPAN, "seconds": 0}]) == ""
