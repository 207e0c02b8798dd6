"""Builds the cluster: CDK stacks, constructs and the synth-time guard."""
