#!/bin/sh
# Upgrade NVIDIA's GPU Operator node by node; each node is tried before the next one is changed.
#
#   PROFILE=profile.yaml VERSION=v25.10.1 gpu-operator.sh gpu-node-0 gpu-node-1 ...
#
# The operator must not upgrade by itself. Set once, in advance (Helm values of the chart, see its documentation):
#   driver.upgradePolicy.autoUpgrade=false   daemonsets.updateStrategy=OnDelete
# Then helm upgrade changes the DaemonSets, and a node is upgraded when its pods are deleted. Label two known-good nodes
# that are not in the list: kubectl label node NODE seatrial/known-good=true
: "${VERSION:?the version of the chart to upgrade to}"
NAMESPACE=${NAMESPACE:-gpu-operator}
RELEASE=${RELEASE:-gpu-operator}

renew() { # NODE: let the DaemonSets recreate its GPU pods; the validator is Ready when driver and plugin work
  kubectl -n "$NAMESPACE" delete pod --field-selector "spec.nodeName=$1" --wait --timeout=10m &&
    settled "$1" "$NAMESPACE" "${VALIDATOR:-app=nvidia-operator-validator}"
}

upgrade_node() { renew "$1"; }

roll_back_node() { helm rollback "$RELEASE" --namespace "$NAMESPACE" --wait && renew "$1"; }

. "$(dirname "$0")/node-by-node.sh"
before "$1"
helm upgrade "$RELEASE" nvidia/gpu-operator --namespace "$NAMESPACE" --version "$VERSION" --reuse-values --wait ||
  stop 10 "helm upgrade did not work: nothing was tried"
STAYS="release $RELEASE stays upgraded for pods to come: helm rollback $RELEASE --namespace $NAMESPACE"
for node in "$@"; do one_node "$node"; done
echo "gate: all nodes are upgraded"
