#!/bin/bash
# First boot of a cluster member: writes its configuration, fetches the asset, runs bootstrap.sh.
# stacks/user_data.py fills in what stands between at signs. Whatever fails here is signalled from
# here; once bootstrap.sh has let the probe report, the probe's word stands.
#
# Branches the local lab does not run: an AWS CLI in the image; no python3 in the image.
# tests/userdata/test_boot.py boots both.
set -euo pipefail
umask 022
shopt -s inherit_errexit

readonly ASSET='s3://@ASSET_BUCKET@/@ASSET_KEY@'
readonly REGION='@REGION@'
readonly HANDLE_URL='@HANDLE_URL@'
readonly HOME_DIR=/opt/fullmesh RUN_DIR=/run/fullmesh LOG_DIR=/var/log/fullmesh
readonly OUTPUT=$LOG_DIR/launch.log
step=prepare

# One line of text that is safe inside a JSON string.
plain() { LC_ALL=C tr '\n\t"' "  '" | LC_ALL=C tr '\134' / | LC_ALL=C tr -cd '[:print:]'; }

# The end of a text. (A negative offset beyond its beginning would give nothing at all.)
last() { if ((${#2} > $1)); then printf %s "${2: -$1}"; else printf %s "$2"; fi; }

# Tells the wait condition that this node failed. An empty Content-Type is part of what was signed.
signal_failure() {
  local status=$1 output reason data body
  output=$(tail -n 30 "$OUTPUT" 2>/dev/null | plain) || output='(no output)'
  reason="bootstrap-failed: node $(uname -n): step $step ended with status $status: $(last 250 "$output")"
  data=$(last 3000 "$output")
  # Through no file: a full disk is one of the failures to be told.
  body=$(printf '{"Status": "FAILURE", "Reason": "%s", "UniqueId": "verdict", "Data": "%s"}' \
    "$(printf %s "${reason:0:400}" | plain)" "$data")
  if python3 -c '' 2>/dev/null; then
    SIGNAL_URL=$HANDLE_URL SIGNAL_BODY=$body python3 -c '
import http.client, os, sys, time, urllib.parse
url = urllib.parse.urlsplit(os.environ["SIGNAL_URL"])
kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
for wait_s in (1, 2, 4, 8, 0):
    try:
        connection = kind(url.netloc, timeout=10)
        body = os.environ["SIGNAL_BODY"].encode()
        connection.request("PUT", url.path + "?" + url.query, body, {"Content-Type": ""})
        status = connection.getresponse().status
        if status == 200:
            sys.exit(0)
        print(f"the handle of the wait condition answered with status {status}", file=sys.stderr)
    except OSError as error:
        print(f"the handle of the wait condition did not answer: {error}", file=sys.stderr)
    time.sleep(wait_s)
sys.exit(1)
'
  else
    printf %s "$body" | curl --config <(printf 'url = "%s"\n' "$HANDLE_URL") --noproxy '*' --fail --silent \
      --show-error --retry 4 --retry-connrefused --max-time 10 --request PUT --header 'Content-Type;' \
      --data-binary @-
  fi
}

finish() {
  local status=$?
  trap - EXIT
  if ((status != 0)) && [[ ! -e $RUN_DIR/reported ]]; then
    echo "fullmesh: step $step ended with status $status"
    if [[ -n $HANDLE_URL ]]; then
      signal_failure "$status" || echo "fullmesh: the failure could not be signalled"
    fi
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# Runs a step; its output goes to the log of this script and to cloud-init's.
run() {
  local status=0
  step=$1
  shift
  echo "fullmesh: $step"
  "$@" >"$OUTPUT" 2>&1 || status=$?
  cat "$OUTPUT"
  return "$status"
}

need_python() {
  python3 -c '
import sys
if sys.version_info < (3, 9):
    sys.exit(f"python3 is {sys.version}; the probe needs 3.9 or later: use another image")
' || {
    echo "python3 does not run; use Amazon Linux 2023, Ubuntu 22.04 or later, or an image that has it"
    return 1
  }
}

fetch_asset() {
  if command -v aws && aws s3 cp --only-show-errors --region "$REGION" "$ASSET" "$RUN_DIR/asset.zip"; then
    return
  fi
  python3 "$RUN_DIR/fetch.pyz" "$ASSET" "$RUN_DIR/asset.zip" "$REGION"
}

mkdir -p "$HOME_DIR" "$RUN_DIR" "$LOG_DIR" /etc/fullmesh
rm -f "$RUN_DIR/reported"
cat >/etc/fullmesh/config.json <<'CONFIG'
@CONFIG@
CONFIG
cat >"$RUN_DIR/fetch.txt" <<'FETCH'
@FETCH@
FETCH

run python need_python
run unpack-fetch python3 -c '
import base64, bz2, sys
packed = "".join(open(sys.argv[1]).read().split())
open(sys.argv[2], "wb").write(bz2.decompress(base64.b85decode(packed)))
' "$RUN_DIR/fetch.txt" "$RUN_DIR/fetch.pyz"
run fetch fetch_asset
run unpack python3 -m zipfile -e "$RUN_DIR/asset.zip" "$HOME_DIR"
step=bootstrap
bash "$HOME_DIR/bootstrap.sh" 2>"$OUTPUT" || {
  status=$?
  cat "$OUTPUT"
  if [[ -e $LOG_DIR/bootstrap.log ]]; then tail -n 3 "$LOG_DIR/bootstrap.log" >>"$OUTPUT"; fi
  exit "$status"
}
