#!/bin/sh
# The gate alone: accept the current state, and compare it with the accepted run before the change.
#
#   seatrial accept --profile PROFILE --out before     (before the change)
#   gate.sh before after --profile PROFILE             (after it; all further options are those of seatrial accept)
#
# The second trial runs on the nodes of the first: other nodes do not show the effect of the change.
# Exit codes: 0 continue, 1 roll back, 10 inconclusive: stop for a manual decision. 10 is never a pass.
set -u
[ $# -ge 2 ] || { echo "gate: gate.sh BEFORE AFTER [options of seatrial accept]" >&2; exit 4; }
before=$1 after=$2
shift 2

passed() { # CODE WHAT: end the script unless it was a pass
  case $1 in
    0) ;;
    1) echo "gate: $2 failed: roll back the change" >&2; exit 1 ;;
    10) echo "gate: $2 was inconclusive: this is not a pass" >&2; exit 10 ;;
    *) echo "gate: $2 ended with an error (exit code $1)" >&2; exit 10 ;;
  esac
}

seatrial accept --out "$after" --on "$before" "$@"
passed $? "accept"
seatrial compare "$before" "$after"
passed $? "compare"
echo "gate: passed"
