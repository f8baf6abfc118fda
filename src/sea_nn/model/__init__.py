"""How a caller's model is run: opened once, asked many times, and given back as it was.

``probe`` opens it: a twin that shares its weights (``borrowing``), behind one face that counts
every row (``wrapped``), and what its outputs mean (``outputs``). ``evaluator`` packs variants of
inputs into chunks that fit (``batching``), ``gradient_sums`` adds up gradients at many points,
``noise`` has draws that belong to an input, ``precision`` keeps TF32 off.
"""
