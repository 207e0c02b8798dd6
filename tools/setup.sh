#!/usr/bin/env bash
# Installs everything the project needs into the checkout. Safe to run twice; a second
# run with nothing changed returns at once. Nothing outside the checkout is written but
# Debian packages, and those only when this user may install them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
log_dir=".fullmesh/logs"
log="$log_dir/setup.log"
stamp=".venv/.setup-stamp"
awscli_requirement="awscli==1.45.64"
# What nodes install torch with where their image has no pip; the last release for Python 3.9 to 3.13.
pip_requirement="pip==24.3.1"

fail() {
    printf 'setup: %s\n' "$1" | fmt --width=80 >&2
    exit 1
}

# step TITLE EXPECTATION COMMAND... - runs one long step, its output in the log; a line of 80 columns at most.
step() {
    local title="$1" expected="$2" started=$SECONDS
    shift 2
    printf 'setup: %s (%s) ... ' "$title" "$expected"
    if ! "$@" >>"$log" 2>&1 </dev/null; then
        printf 'failed after %d s\n' "$((SECONDS - started))"
        tail -n 15 "$log" >&2
        fail "$title failed; the whole output is in $log"
    fi
    printf 'done in %d s\n' "$((SECONDS - started))"
}

missing_packages() {
    command -v nft >/dev/null 2>&1 || [ -x /usr/sbin/nft ] || printf '%s ' nftables
    command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || printf '%s ' iproute2
    command -v nsenter >/dev/null 2>&1 || printf '%s ' util-linux
    "$python" -c 'import ensurepip, venv' 2>/dev/null || printf '%s ' python3-venv
}

install_packages() {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
}

install_torch() {
    local requirement cpu_index
    requirement="$(grep -v '^#' requirements-torch.txt)"
    # Plain "torch" brings several GB of CUDA. So: a "+cpu" build where pip is configured with one;
    # else the index of CPU builds that the nodes use, too; only where neither answers, the plain one.
    cpu_index="$(.venv/bin/python -c 'from cluster.spec import ClusterSpec; print(ClusterSpec().torch_index_url)')"
    .venv/bin/pip install --quiet "$requirement+cpu" ||
        .venv/bin/pip install --quiet --index-url "$cpu_index" "$requirement" ||
        .venv/bin/pip install --quiet "$requirement"
}

install_awscli() {
    # In a virtual environment of its own: it pins a botocore that the emulator does not take.
    .venv/bin/python -m venv --clear .venv/awscli
    .venv/awscli/bin/pip install --quiet "$awscli_requirement"
    ln -sf ../awscli/bin/aws .venv/bin/aws
}

fetch_pip_wheel() {
    .venv/bin/pip download --quiet --no-deps --dest .venv/wheels "$pip_requirement"
}

install_cdk_cli() {
    local npm
    mapfile -t npm < <(.venv/bin/python -c 'from lab import toolchain; print(*toolchain.npm_command(), sep="\n")')
    # The system's certificates, too, as pip takes them: proxies of organisations have their own.
    PATH="$(dirname "${npm[0]}"):$PATH" NODE_OPTIONS=--use-system-ca "${npm[@]}" ci --no-audit --no-fund --loglevel=error
    # One folder on PATH gives fullmesh, cdk, aws, python and the node that the CDK needs.
    ln -sf "${npm[0]}" .venv/bin/node
    ln -sf ../../node_modules/.bin/cdk .venv/bin/cdk
}

[ "$(uname -s)" = Linux ] || fail "this machine runs $(uname -s); the lab needs Linux (network namespaces and nftables)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$python is $("$python" --version 2>&1); Python 3.11 or later is needed: set PYTHON=/path/to/python3.11"

mkdir -p "$log_dir"
want="$(cat requirements.txt requirements-torch.txt package-lock.json pyproject.toml tools/setup.sh | sha256sum)"
packages="$(missing_packages)"
if [ -z "$packages" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
    exit 0
fi
: >"$log"
printf 'setup: some minutes, once; the output of every step is in %s\n' "$log"

if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # a list of package names, split on purpose
    set -- $packages
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        printf 'setup: installs %s\n' "$*"
        step "system packages" "about 20 s" install_packages "$@"
    else
        fail "missing system packages; run: sudo apt-get install $*"
    fi
fi

[ -x .venv/bin/python ] || step "virtual environment" "about 5 s" "$python" -m venv .venv
step "Python packages" "about 90 s" .venv/bin/pip install --quiet --requirement requirements.txt
step "PyTorch, CPU build" "about 60 s, 200 MB" install_torch
step "the fullmesh command" "about 5 s" .venv/bin/pip install --quiet --no-deps --editable .
step "AWS CLI" "about 20 s" install_awscli
step "pip for the nodes" "about 2 s, 2 MB" fetch_pip_wheel
step "CDK CLI" "about 10 s" install_cdk_cli
printf '%s' "$want" >"$stamp"
