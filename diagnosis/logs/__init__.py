"""What `fullmesh explain` makes of saved logs: read as streams, turned into facts, weighed by rules.

files -> scan -> read (with head, unwrap and the rows of `signatures`) -> facts -> the modules of rules
-> claims -> decide -> show. `diagnosis.explain` puts them together.
"""
