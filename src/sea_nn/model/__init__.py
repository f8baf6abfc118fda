"""How a caller's model is run: opened once, asked many times, and given back as it was.

``opening`` opens it: a twin that shares its weights, behind one face that counts every row and says
what its outputs mean (``outputs``). ``probe`` is what it is asked by, in chunks that fit;
``callables`` has models without a twin, ``adapters`` models made of something else, and ``noise``
draws that belong to an input.
"""
