#!/bin/sh
# The usual way: try every "HOST PORT" line of standard input with nc, one after the other.
# Prints "HOST PORT STATUS WORDS": nc's exit status, and what it said.
while read -r host port; do
    words=$(nc -zv -w 2 "$host" "$port" 2>&1 </dev/null)
    printf '%s %s %s %s\n' "$host" "$port" "$?" "$words"
done
