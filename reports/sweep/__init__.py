"""What a person sees of a sweep: lines for the terminal, and pictures and tables for the page."""
