"""What executes inside a trial's pod: the standard library alone, Python 3.8 and newer, no import from the suite."""
