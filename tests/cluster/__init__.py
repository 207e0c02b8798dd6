"""Tests of what must be true of a cluster."""
