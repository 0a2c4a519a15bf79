"""What a benchmark measured: tables in all their forms, and JSON reports."""
