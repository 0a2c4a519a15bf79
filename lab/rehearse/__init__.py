"""`seatrial rehearse`: the only part of the lab that knows the suite, which it starts by its command line."""
