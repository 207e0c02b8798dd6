"""Reads AWS and compares it with the specification."""
