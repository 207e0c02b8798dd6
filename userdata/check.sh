#!/bin/bash
# The periodic check of a member: all members begin at the same five minutes of the clock, so the
# run they meet in needs no agreement. Started by fullmesh-check.timer.
set -euo pipefail

readonly PERIOD_S=300 # as OnCalendar in fullmesh-check.timer
readonly PROBE=/opt/fullmesh/fullmesh.pyz

run=$(python3 -c 'import json; print(json.load(open("/etc/fullmesh/config.json"))["run"])')
now=$(date +%s)
exec python3 "$PROBE" check --no-collective --timeout-s 120 --run "$run-check-$((now / PERIOD_S * PERIOD_S))"
