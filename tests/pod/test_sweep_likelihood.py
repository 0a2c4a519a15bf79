"""The statistic that compares the explanations of a sweep's failures."""

import pytest

from jobs.pod.sweep.likelihood import DECISIVE, at_unknown_rate, gain

NODES = 64


@pytest.mark.parametrize(
    ("shares", "decisive"),
    [
        ([0.7, 0.7, 0.7], True),
        ([0.0, 0.0, 0.0], True),  # three tests that did not end
        ([0.62, 0.75, 0.85], False),  # three accidents at different speeds do happen
        ([0.7, 0.7], False),
        ([0.7, 0.7, 0.7, None, None, None, None, None, None], False),  # most partners pass
        ([0.7, 0.7, 0.7, 0.7, 0.7, None, None], True),
    ],
)
def test_a_node_is_at_fault_where_one_fault_explains_its_failures_decisively(shares, decisive):
    assert (gain(shares, NODES) >= DECISIVE) is decisive


def test_failures_of_other_pairs_make_accidents_likelier():
    assert gain([0.7] * 3, NODES, (0, 200)) > gain([0.7] * 3, NODES) > gain([0.7] * 3, NODES, (20, 200))
    assert gain([0.7] * 3, NODES, (20, 200)) < DECISIVE, "a tenth of all tests fails"


def test_a_choice_among_more_elements_needs_more_evidence():
    assert gain([0.7] * 3, 4) > gain([0.7] * 3, 1000)


def test_a_likelihood_over_all_rates_sums_to_one_over_the_counts():
    """Of three tests each number of failures is equally likely; a single sequence of it is one of so many."""
    assert at_unknown_rate((0, 3)) == pytest.approx(at_unknown_rate((3, 3)))
    assert at_unknown_rate((1, 2)) < at_unknown_rate((0, 2))
