"""The subcommands of ``seatrial``: one module for each that does more than call pytest."""
