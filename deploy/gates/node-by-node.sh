# Sourced by gpu-operator.sh and driver-daemonset.sh, which define upgrade_node NODE and roll_back_node NODE.
#
# Each node in turn is accepted together with known-good nodes (the first one before anything is changed), drained,
# upgraded, tried again with the same nodes while a taint keeps other pods off, and compared. A good node joins the
# known-good ones. A worse node is rolled back, and the upgrade ends.
# Exit codes: 0 all nodes upgraded, 1 a node is worse and was rolled back, 10 inconclusive: it stays cordoned.
# Known-good nodes have the label GOOD, preferably two or more that are not upgraded now:
#   kubectl label node NODE seatrial/known-good=true
set -u
: "${PROFILE:?the profile of the gate, with a toleration of seatrial/canary}"
STAYS= TRIED=
: "${RECORDS:=records}"
: "${GOOD:=seatrial/known-good=true}"

try() { # NODE BEFORE|AFTER: a trial of this node together with known-good ones
  seatrial accept --profile "$PROFILE" --nodes "kubernetes.io/hostname=$1" --partner "$GOOD" --out "$RECORDS/$1/$2"
}

stop() { # CODE TEXT
  echo "gate: $2" >&2
  [ -z "$STAYS" ] || echo "gate: $STAYS" >&2
  exit "$1"
}

before() { # NODE
  echo "gate: $1: before the upgrade"
  kubectl label node "$1" "${GOOD%%=*}-" >/dev/null || stop 4 "node $1 could not be labelled: nothing was changed on it"
  try "$1" before || stop 10 "$1 was not accepted before the upgrade (exit code $?): nothing was changed on it"
  TRIED=$1
}

one_node() { # NODE
  [ "$1" = "$TRIED" ] || before "$1"
  kubectl cordon "$1" && kubectl drain "$1" --ignore-daemonsets --delete-emptydir-data --timeout="${DRAIN:-1h}" ||
    stop 10 "$1 could not be drained: it is cordoned, and not upgraded"
  upgrade_node "$1" || stop 10 "$1: the upgrade failed: it stays cordoned"
  kubectl taint node "$1" seatrial/canary=true:NoSchedule --overwrite || stop 10 "$1 could not be tainted: it stays cordoned"
  kubectl uncordon "$1"

  try "$1" after
  code=$?
  if [ $code -eq 0 ]; then
    seatrial compare "$RECORDS/$1/before" "$RECORDS/$1/after"
    code=$?
  fi
  [ $code -eq 0 ] || kubectl cordon "$1"
  kubectl taint node "$1" seatrial/canary-
  case $code in
    0) kubectl label node "$1" "$GOOD" --overwrite && echo "gate: $1: good, continuing with the next node" ;;
    1)
      roll_back_node "$1" || stop 1 "$1 is worse, and could not be rolled back: it stays cordoned"
      stop 1 "$1 is worse: rolled back, still cordoned; see $RECORDS/$1/after"
      ;;
    *) stop 10 "$1: inconclusive (exit code $code): it stays cordoned; see $RECORDS/$1/after" ;;
  esac
}

settled() { # NODE NAMESPACE SELECTOR: wait until the selected pods exist again on this node, and are Ready
  tries=60
  until [ -n "$(kubectl -n "$2" get pod --selector "$3" --field-selector "spec.nodeName=$1" -o name)" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || return 1
    sleep 1
  done
  kubectl -n "$2" wait pod --selector "$3" --field-selector "spec.nodeName=$1" --for=condition=Ready \
    --timeout="${SETTLE:-20m}" && kubectl wait node "$1" --for=condition=Ready --timeout=5m
}

[ $# -gt 0 ] || stop 4 "name the nodes to upgrade, in order"
