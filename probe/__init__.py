"""Runs on a node: discovery, preflight, mesh, collective, publishing, signalling."""
