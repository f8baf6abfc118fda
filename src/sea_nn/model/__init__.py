"""How a caller's model is run: opened once, asked many times, and given back as it was.

``probe`` opens it: a twin that shares its weights (``borrowing``), behind one face that counts
every row and says what its outputs mean (``outputs``). ``evaluator`` packs variants of inputs into
chunks that fit; ``noise`` has draws that belong to an input.
"""
