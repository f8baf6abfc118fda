"""The attribution methods that can join an ensemble, one family a file.

Each is a function `(probe, **options) -> maps` that returns one map an input, with the
shape of the input, or with one channel where the method has none. `sea_nn.members.registry` names
them.
"""
