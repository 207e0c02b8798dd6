"""Every change, in an order in which what nothing takes back comes last."""

from __future__ import annotations

from bench.changes.table_others import FLEET, LASTING, NETWORK
from bench.changes.table_rules import INTERFACES, PATHS, RULES

CHANGES = (*RULES, *INTERFACES, *PATHS, *NETWORK, *FLEET, *LASTING)
