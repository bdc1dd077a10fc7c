#!/bin/sh
# Runs the Python tests against the wheel in dist/, with full counts, on every
# CPython from 3.11 on that is found.
set -eu
cd "$(dirname "$0")/.."
tested=""
for python in python3.11 python3.12 python3.13 python3.14 python3 "$HOME"/.pyenv/versions/*/bin/python3; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null) || continue
    case " $tested " in *" $version "*) continue ;; esac
    tested="$tested $version"
    venv=.venv-$version
    echo "== CPython $version"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements/dev.txt
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
    (cd tests && SLUICEGATE_TEST_FULL=1 "../$venv/bin/python" -m pytest -c ../pyproject.toml --rootdir=.. -q .)
done
echo "tested on CPython:$tested"
