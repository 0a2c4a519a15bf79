"""What does the user type behind ``seatrial``? One module for each command that is more than pytest."""
