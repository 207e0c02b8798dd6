"""Side-by-side measurements: each figure of the README is printed, and recorded, by one of these.

`python -m bench [NAME...]` runs them. They measure on the machine at hand and never judge by
a clock: a figure past its target is printed as such, and only a benchmark that could not run,
or two ways that disagree about the network, end in a failure.
"""
