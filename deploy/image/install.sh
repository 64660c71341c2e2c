#!/bin/sh
# Installs inferd into /opt/inferd, without what only builds or tests need: install.sh SOURCE EXTRAS
set -eu
source=$1 extras=$2
[ -n "${PIP_CERT:-}" ] || unset PIP_CERT

python3 -m venv /opt/inferd
pip="/opt/inferd/bin/python -m pip --disable-pip-version-check --no-cache-dir"
$pip install -q --no-compile "$source${extras:+[$extras]}"
packages=$(echo /opt/inferd/lib/python3*/site-packages)
# Of ONNX Runtime, what makes models; of all, tests and sources.
rm -rf "$packages/onnxruntime/transformers" "$packages/onnxruntime/tools"
find "$packages" -depth -type d -name tests -exec rm -rf {} +
find "$packages" \( -name '*.a' -o -name '*.pyi' -o -name '*.pxd' -o -name '*.pyx' -o -name '*.h' \
    -o -name '*.c' -o -name '*.cpp' \) -delete
# Those that come with their symbols. Libraries that auditwheel has patched would break.
strip --strip-unneeded "$packages"/uvloop/*.so "$packages"/httptools/parser/*.so "$packages"/csimdjson*.so
$pip uninstall -q -y pip setuptools
# Compiled now: the image may be read-only, and each start would do it again. What is for other
# versions of Python does not compile, and is not imported.
/opt/inferd/bin/python -m compileall -q "$packages" || true
/opt/inferd/bin/inferd --version
