"""The measurements of a benchmark: tables in all their forms, and JSON reports."""
