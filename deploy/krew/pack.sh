#!/bin/sh
# Pack the plugin of kubectl and fill in its manifest: deploy/krew/pack.sh DIST URL, with the suite's wheel in DIST
# (make wheel) and URL the folder from which both will be downloaded.
set -eu
here=$(dirname "$0") dist=$1 url=$2
wheel=$(ls "$dist"/seatrial-*.whl)
version=$(basename "$wheel" | cut -d - -f 2)
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
cp "$here/kubectl-seatrial" "$wheel" "$packed/"
for licence in "$here"/../../LICENSE*; do # krew requires it; the owner has yet to choose one
    [ -e "$licence" ] && cp "$licence" "$packed/"
done
tar -czf "$dist/seatrial-krew.tar.gz" --sort=name --owner=0 --group=0 --mtime=@0 -C "$packed" .
sum=$(sha256sum "$dist/seatrial-krew.tar.gz" | cut -d ' ' -f 1)
sed -e "s|@VERSION@|$version|" -e "s|@URL@|$url|" -e "s|@SHA256@|$sum|" "$here/seatrial.yaml" >"$dist/seatrial-krew.yaml"
