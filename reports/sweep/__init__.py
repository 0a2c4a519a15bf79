"""Views of a sweep: lines for the terminal, pictures and tables for the page."""
