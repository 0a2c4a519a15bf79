"""`seatrial rehearse`: the one room of the lab that knows the suite, and starts it by its command line."""
