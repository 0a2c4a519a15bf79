"""Two runs compared with each other."""
