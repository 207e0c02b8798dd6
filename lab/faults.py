"""Every fault that the lab can provoke, by its id.

Each is declared once, in the table of its group in `lab/fault_tables`; `fullmesh demo --fault ID`
and the tests read them here. A fault's id is that of its first cause, with a suffix where a cause
has several faults.
"""

from __future__ import annotations

from lab.fault import Fault, Way
from lab.fault_tables import addressing, filtering, job, limits, node, path, rendezvous, runtime

__all__ = ["FAULTS", "TABLES", "Fault", "Way"]

TABLES = (
    filtering.FAULTS,
    addressing.FAULTS,
    rendezvous.FAULTS,
    path.FAULTS,
    runtime.FAULTS,
    job.FAULTS,
    limits.FAULTS,
    node.FAULTS,
)

FAULTS: dict[str, Fault] = {fault.id: fault for table in TABLES for fault in table}
