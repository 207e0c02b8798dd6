"""Stands in for AWS: control plane, namespaces as instances, the kernel as firewall."""
