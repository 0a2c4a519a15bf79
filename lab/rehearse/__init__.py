"""`seatrial rehearse`: the one room of the lab that knows the suite, whose command line starts it."""
