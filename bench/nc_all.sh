#!/bin/sh
# The usual way: try every "HOST PORT" line of standard input with nc, one after the other.
# Prints "HOST PORT STATUS WORDS": nc's exit status, and what it said, on one line.
set -f
while read -r host port; do
    words=$(nc -zv -w 2 "$host" "$port" 2>&1 </dev/null)
    # shellcheck disable=SC2086 # split on purpose: joins the lines without another process a target
    echo "$host" "$port" $? $words
done
