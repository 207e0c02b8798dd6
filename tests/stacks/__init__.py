"""Tests of the stacks: on synthesised templates, and of the functions on a control plane."""
