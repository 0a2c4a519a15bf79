"""The subcommands of ``seatrial``: one module for each that is more than pytest."""
