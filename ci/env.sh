# Sourced by the other scripts: creates .venv in the checkout, and again when pyproject.toml or this file
# changes. Once everything is installed, no network is needed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { echo "$0: $*" >&2; exit 1; }

find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3.14 python3.13 python3.12 python3.11 python3 python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "expected Python 3.11 or newer with the venv module; found: $(python3 --version 2>&1 || echo none)." \
      "Install it, or point to it: PYTHON=/path/to/python3.12 $0"
}

setup() {
  local recipe stamp=.venv/.installed log=.venv/install.log
  recipe=$(cat pyproject.toml ci/env.sh | cksum)
  if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$recipe" ]; then
    return
  fi
  local python
  python=$(find_python)
  echo "setting up .venv with $("$python" --version) ..."
  [ -x .venv/bin/python ] || "$python" -m venv .venv \
    || die "cannot create a virtual environment; on Debian: apt-get install python3-venv"
  if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' >"$log" 2>&1; then
    grep -E 'ERROR|error:' "$log" | head -5 >&2
    die "installation failed. If a wheel could not be built, install a compiler and Python headers" \
        "(on Debian: apt-get install gcc python3-dev). If a package could not be downloaded, check the" \
        "network or pip's configuration. The complete output is in $log"
  fi
  echo "$recipe" > "$stamp"
}

setup
export PATH="$PWD/.venv/bin:$PATH"
