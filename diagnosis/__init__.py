"""What observations mean: the catalogue of causes, and reports judged into a verdict.

Pure functions and frozen data, standard library only, Python 3.9 and later.
"""
