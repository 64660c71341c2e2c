#!/usr/bin/env bash
# Builds the image with buildah, as root, on a base made of Debian's packages: no registry of images
# is asked. deploy/image/build.sh [NAME] [EXTRAS]
#
# SUITE and MIRROR choose the Debian; CERTIFICATES is a file that pip trusts, where a proxy makes its own.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=${1:-localhost/inferd:0.1.0} extras=${2:-}
suite=${SUITE:-bookworm} mirror=${MIRROR:-http://deb.debian.org/debian}
base=localhost/debian:$suite-slim

# No overlay file system is needed, and no namespaces: it also runs inside a container.
export STORAGE_DRIVER=${STORAGE_DRIVER:-vfs}
export BUILDAH_ISOLATION=${BUILDAH_ISOLATION:-chroot}

if ! buildah images -q "$base" > /dev/null 2>&1; then
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase "$suite" "$root" "$mirror" > /dev/null
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/var/log/* \
        "$root"/usr/share/{doc,man,locale,info}/*
    container=$(buildah from scratch)
    buildah add -q "$container" "$root" / > /dev/null
    buildah commit -q --rm "$container" "$base" > /dev/null
fi

trusted=()
if [ -n "${CERTIFICATES:-}" ]; then
    trusted=(--volume "$CERTIFICATES:/run/trusted.crt:ro" --build-arg PIP_CERT=/run/trusted.crt)
fi
# Docker's format: that of OCI has no place for HEALTHCHECK.
buildah build --format docker --squash "${trusted[@]}" --build-arg "BASE=$base" \
    --build-arg "EXTRAS=$extras" -f deploy/image/Dockerfile -t "$name" .
buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' "$name"
