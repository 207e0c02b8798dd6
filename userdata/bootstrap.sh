#!/bin/bash
# Brings a member from the fetched asset to a proven mesh: settings of the host, the mesh, a
# Python with torch, the collective, the periodic check. Run by user data; safe to run again.
#
#   sudo bash /opt/fullmesh/bootstrap.sh
#
# Each step has its own log in /var/log/fullmesh, and bootstrap.log tells when each began and how
# it ended. A step that fails is told to the verdict with its last lines; nothing after it runs.
#
# Branches the local lab does not run, because its nodes have torch, no systemd and no package
# manager: pip from an index and from a wheelhouse (tests/userdata/test_boot.py runs them with
# a wheel of its own); dnf, chronyc, limits.d, sysctl.d and the systemd units (on a real image only).
set -euo pipefail
umask 022
shopt -s inherit_errexit nullglob

readonly HOME_DIR=/opt/fullmesh RUN_DIR=/run/fullmesh LOG_DIR=/var/log/fullmesh
readonly CONFIG=/etc/fullmesh/config.json
readonly PROBE=$HOME_DIR/fullmesh.pyz
readonly VENV=$HOME_DIR/torch
readonly WHEELS=$HOME_DIR/wheelhouse
readonly TORCH_PYTHON=$RUN_DIR/torch-python # holds the path of the Python that has torch
readonly DESCRIPTORS=65536                  # Gloo needs a socket for every peer of every group; 1024 is a common default

export HOME=${HOME:-/root} TMPDIR=/var/tmp # first boot has no HOME; /tmp may be memory
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_NO_CACHE_DIR=1
unset PYTHONPATH PYTHONHOME

step=start
child=

log() { echo "$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ) $*" | tee -a "$LOG_DIR/bootstrap.log"; }

# The member's configuration, one value a line, in the order asked for; a blank line for none.
config() {
  python3 -c '
import json, sys
document = json.load(open(sys.argv[1]))
for name in sys.argv[2:]:
    value = document
    for part in name.split("."):
        value = (value or {}).get(part)
    print("" if value is None else value)
' "$CONFIG" "$@"
}

# ---- steps: each runs in a subshell of its own, with its output in its log ----

step_host() {
  local values first='' last=''
  values=$(config ephemeral_ports.first ephemeral_ports.last)
  { read -r first && read -r last; } <<<"$values" || true
  if [[ -n $first ]]; then
    echo "net.ipv4.ip_local_port_range = $first $last"
    if [[ -d /etc/sysctl.d ]]; then
      echo "net.ipv4.ip_local_port_range = $first $last" >/etc/sysctl.d/99-fullmesh.conf
    fi
    echo "$first $last" >/proc/sys/net/ipv4/ip_local_port_range
  fi
  if [[ -d /etc/security/limits.d ]]; then
    printf '* %s nofile %s\n' soft "$DESCRIPTORS" hard "$DESCRIPTORS" >/etc/security/limits.d/99-fullmesh.conf
  fi
  # A clock that is off makes S3 refuse the rows, but then the probe says so: not a failure here.
  if command -v chronyc >/dev/null; then
    chronyc -n tracking || echo "chronyc does not answer: the clock was not looked at"
  else
    echo "no chronyc: the clock was not looked at"
  fi
}

step_mesh() { python3 "$PROBE" node mesh; }

# Prints the first Python that has the wanted torch ("torch==2.13.0"; blank: any).
find_torch() {
  local candidate
  for candidate in "$VENV/bin/python" /opt/pytorch/bin/python /opt/conda/bin/python \
    python3.13 python3.12 python3.11 python3.10 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c '
import sys
from importlib import metadata, util
name, _, wanted = sys.argv[1].partition("==")
found = util.find_spec("torch") and metadata.version("torch").partition("+")[0]
sys.exit(0 if found and wanted in ("", found) else 1)
' "$1" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# Prints a Python of exactly the version ("3.11"), or of 3.10 or later when none is given.
find_base() {
  local candidate
  for candidate in ${1:+"python$1"} ${1:-python3.13 python3.12 python3.11 python3.10} python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c '
import sys, venv
wanted = tuple(map(int, sys.argv[1].split("."))) if sys.argv[1] else ()
sys.exit(0 if (sys.version_info[:2] == wanted if wanted else sys.version_info >= (3, 10)) else 1)
' "${1:-}" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# Runs an installer for what is left of the step's time (install_limit_s, SECONDS count from the
# step's start). A mirror that hangs must not end in silence, and the others wait just as long.
limited() {
  local left=$((install_limit_s - SECONDS)) status=0
  if ((left > 0)); then timeout "$left" "$@" || status=$?; else status=124; fi
  if ((status == 124)); then
    echo "gave up after $install_limit_s s (install_limit_s in $CONFIG): $*" >&2
  fi
  return "$status"
}

# Prints a base Python, from the image or from the distribution's repository.
provide_base() {
  local version=${1:-3.11}
  if find_base "${1:-}"; then return; fi
  if ! command -v dnf >/dev/null; then
    echo "no python${1:-3.10 or later} in this image, and no dnf to install one; use an image that has it" >&2
    return 1
  fi
  limited dnf install -y "python$version" "python$version-pip" >&2
  find_base "$version"
}

# Makes the environment and installs into it; pip comes as a wheel, for Ubuntu ships none.
install_torch() {
  local base=$1 requirement=$2 pips pip
  shift 2
  pips=("$WHEELS"/pip-*.whl "$HOME_DIR"/pip-*.whl)
  "$base" -m venv --without-pip --clear "$VENV"
  if ((${#pips[@]})); then
    pip=("$VENV/bin/python" "${pips[0]}/pip")
  elif "$base" -m pip --version; then
    pip=("$base" -m pip --python "$VENV/bin/python")
  else
    echo "no pip: $base has none, and neither $HOME_DIR nor the wheelhouse holds a pip-*.whl"
    return 1
  fi
  limited "${pip[@]}" install --only-binary :all: "$@" "$requirement"
}

step_torch() {
  local values torch_source='' requirement='' index='' bucket='' key='' region='' found base wheels tag
  local install_limit_s=''
  SECONDS=0
  values=$(config install_limit_s torch_source torch_requirement torch_index_url asset_bucket wheelhouse_key region)
  {
    read -r install_limit_s && read -r torch_source && read -r requirement && read -r index
    read -r bucket && read -r key && read -r region
  } <<<"$values" || true
  install_limit_s=${install_limit_s:-900} # as in NodeConfig
  if [[ $torch_source == image ]]; then requirement=torch; fi
  if found=$(find_torch "${requirement:-torch}"); then
    echo "torch is in the image: $found"
  else
    case $torch_source in
      image)
        echo "torch_source is image, but no Python of this image has torch; take an image that has, or index"
        return 1
        ;;
      index)
        base=$(provide_base)
        install_torch "$base" "${requirement:-torch}" ${index:+--index-url "$index"}
        ;;
      wheelhouse)
        PYTHONPATH=$PROBE python3 "$HOME_DIR/fetch.py" "s3://$bucket/$key" "$WHEELS.zip" "$region"
        rm -rf "$WHEELS"
        python3 -m zipfile -e "$WHEELS.zip" "$WHEELS"
        rm -f "$WHEELS.zip"
        wheels=("$WHEELS"/torch-*-cp3*-*"$(uname -m)".whl)
        if ((${#wheels[@]} == 0)); then
          echo "the wheelhouse holds no torch-*.whl for $(uname -m): $(ls "$WHEELS")"
          return 1
        fi
        tag=${wheels[0]##*-cp3}
        base=$(provide_base "3.${tag%%-*}")
        install_torch "$base" "${requirement:-torch}" --no-index --find-links "$WHEELS"
        rm -rf "$WHEELS"
        ;;
      *)
        echo "torch_source '$torch_source' in $CONFIG is none of index, wheelhouse, image"
        return 1
        ;;
    esac
    found=$(find_torch "${requirement:-torch}")
    echo "torch is installed: $found"
  fi
  echo "$found" >"$TORCH_PYTHON"
}

step_collective() { "$(<"$TORCH_PYTHON")" "$PROBE" node collective; }

# Prints the timer with this member's interval; where no hour is a multiple of it, it fires every
# minute and check.sh lets the others pass.
timer() {
  local every minutes
  every=$(config check_interval_min)
  every=${every:-5} # as in NodeConfig
  ((60 % every == 0)) || every=1
  minutes="0/$every"
  ((every < 60)) || minutes=00 # systemd takes no step of 60
  sed "s|^OnCalendar=.*|OnCalendar=*:$minutes UTC|" "$HOME_DIR/fullmesh-check.timer"
}

step_units() {
  if [[ ! -d /run/systemd/system ]]; then
    echo "no systemd: the periodic check is not installed"
    return
  fi
  install -m 644 "$HOME_DIR"/fullmesh-check.service /etc/systemd/system/
  timer >/etc/systemd/system/fullmesh-check.timer
  systemctl daemon-reload
  systemctl enable --now fullmesh-check.timer
}

# ---- running them ----

# Tells the verdict what failed. Where the probe cannot, user data signals instead: the file
# `reported` stands only when the probe has spoken (its exit statuses 0, 1 and 3 are verdicts).
report_failure() {
  local status=$1 output=$2 said=0
  python3 "$PROBE" node failed --step "$step" --status "$status" --output "$output" \
    >"$LOG_DIR/failed.log" 2>&1 || said=$?
  if ((said == 0 || said == 1 || said == 3)) && ! grep -q '^Traceback' "$LOG_DIR/failed.log"; then
    : >"$RUN_DIR/reported"
  else
    log "the failure could not be reported (status $said): $(tail -n 1 "$LOG_DIR/failed.log")"
  fi
}

# shellcheck disable=SC2317,SC2329 # called by the traps
interrupted() {
  trap '' TERM INT HUP
  [[ -z $child ]] || kill -- "-$child" 2>/dev/null || true
  log "$step: stopped by signal $1"
  echo "stopped by signal $1" >>"$LOG_DIR/$step.log"
  report_failure "$((128 + $1))" "$LOG_DIR/$step.log"
  exit "$((128 + $1))"
}

run() {
  local began=$EPOCHREALTIME status=0 output
  step=$1
  output=$LOG_DIR/$step.log
  log "$step: begins"
  # In the background, and waited for, so that a signal is handled while the step runs; with job
  # control, so that the step and all it started can be stopped together.
  set -m
  (
    set -euo pipefail
    trap - TERM INT HUP
    "step_$step"
  ) >"$output" 2>&1 &
  child=$!
  set +m
  wait "$child" || status=$?
  child=
  log "$step: ended with status $status after $(((${EPOCHREALTIME/[.,]/} - ${began/[.,]/}) / 1000)) ms"
  if ((status != 0)); then
    tail -n 40 "$output"
    report_failure "$status" "$output"
    exit "$status"
  fi
}

mkdir -p "$RUN_DIR" "$LOG_DIR"
trap 'interrupted 15' TERM
trap 'interrupted 2' INT
trap 'interrupted 1' HUP

# The member itself may hold many sockets, whatever the limit this script was started with.
ulimit -n "$(ulimit -Hn)" || log "the limit of open files stays at $(ulimit -n)"

exec 9>"$RUN_DIR/bootstrap.lock"
if ! flock --nonblock 9; then
  echo "bootstrap.sh is running already; wait for it: tail -f $LOG_DIR/bootstrap.log"
  exit 75
fi

run host
run mesh
run torch
run collective
run units
log "done"
