"""Stands in for AWS: control plane, namespaces as instances, the kernel as firewall."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
