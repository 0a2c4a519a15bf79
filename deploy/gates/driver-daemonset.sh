#!/bin/sh
# Upgrade a driver that your own DaemonSet installs, node by node.
#
#   PROFILE=profile.yaml IMAGE=registry.example/driver:590.10 driver-daemonset.sh gpu-node-0 gpu-node-1 ...
#
# Its update strategy must be OnDelete: a rolling update would not wait for a trial. Label two known-good nodes that are
# not in the list: kubectl label node NODE seatrial/known-good=true
: "${IMAGE:?the image of the new driver}"
NAMESPACE=${NAMESPACE:-gpu-operator}
DAEMONSET=${DAEMONSET:-nvidia-driver-daemonset}
CONTAINER=${CONTAINER:-nvidia-driver-daemonset}

renew() { # NODE: recreate its driver pod
  pods=$(kubectl -n "$NAMESPACE" get pod --selector "$SELECTOR" --field-selector "spec.nodeName=$1" -o name) &&
    [ -n "$pods" ] && kubectl -n "$NAMESPACE" delete --wait --timeout=10m $pods && settled "$1" "$NAMESPACE" "$SELECTOR"
}

upgrade_node() { renew "$1"; }

roll_back_node() { kubectl -n "$NAMESPACE" rollout undo "daemonset/$DAEMONSET" && renew "$1"; }

. "$(dirname "$0")/node-by-node.sh"
strategy=$(kubectl -n "$NAMESPACE" get daemonset "$DAEMONSET" -o 'jsonpath={.spec.updateStrategy.type}')
[ "$strategy" = OnDelete ] || stop 4 "daemonset/$DAEMONSET has the update strategy ${strategy:-unknown}, not OnDelete"
SELECTOR=${SELECTOR:-app=$DAEMONSET}
before "$1"
kubectl -n "$NAMESPACE" set image "daemonset/$DAEMONSET" "$CONTAINER=$IMAGE" || stop 10 "the image could not be set"
STAYS="daemonset/$DAEMONSET keeps the new image for pods to come: kubectl -n $NAMESPACE rollout undo daemonset/$DAEMONSET"
for node in "$@"; do one_node "$node"; done
echo "gate: all nodes are upgraded"
