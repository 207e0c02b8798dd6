"""The hosts' own firewalls: rulesets parsed and evaluated, what they do to a flow, how they are mended."""
