"""Changes that somebody makes beside the stack, and what each of them means.

One table for the tests and for the page that shows what `cdk diff`, `cdk drift` and
`fullmesh audit` see of them.
"""
