#!/bin/bash
# The periodic check of a member: all members begin at the same minutes of the clock, so the run
# they meet in needs no agreement. Started by fullmesh-check.timer, in every minute that a check
# may begin in. It never listens on MASTER_PORT: that is the training job's.
set -euo pipefail

readonly PROBE=/opt/fullmesh/fullmesh.pyz

due=$(PYTHONPATH=$PROBE python3 -m probe.periodic)
[[ -n $due ]] || exit 0 # an interval that no hour is a multiple of: not in this minute
read -r run timeout_s <<<"$due"
exec python3 "$PROBE" check --no-master-port --no-collective --timeout-s "$timeout_s" --run "$run"
