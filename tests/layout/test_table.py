"""A table of cases is one test that tries each row and names all failing ones."""

import inspect

import pytest

from tests.table import table


def test_each_row_is_tried_and_each_failure_named():
    tried = []

    @table("number, word", [(1, "one"), (2, "three"), (3, "three"), (4, "five")], ids=lambda row: row[1])
    def case(number, word):
        """Pass."""
        tried.append(number)
        assert number == ["one", "two", "three", "four"].index(word) + 1

    with pytest.raises(AssertionError) as raised:
        case()
    assert tried == [1, 2, 3, 4]
    assert "2 of 4 rows failed" in str(raised.value)
    assert all(word in str(raised.value) for word in ("three:\n", "five:\n", "ValueError: 'five' is not in list"))
    assert (case.__name__, case.__doc__) == ("case", "Pass.")


def test_its_fixtures_are_the_parameters_that_no_row_has():
    seen = []

    @table("number", [1, 2])
    def case(number, judge):
        seen.append((number, judge))

    assert [*inspect.signature(case).parameters] == ["judge"]
    case(judge="j")
    assert seen == [(1, "j"), (2, "j")]


def test_a_table_without_rows_is_refused():
    with pytest.raises(AssertionError, match="without rows"):
        table("number", [])
