"""What did a benchmark measure? Tables in all their forms, and JSON reports."""
