"""Tests of what observations mean."""
