"""What must be true of a Gloo cluster: the specification, the rules and the flows.

Pure functions and frozen data, standard library only, Python 3.9 and later.
"""
