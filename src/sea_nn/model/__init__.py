"""How a caller's model is run: many passes, fast, without changing it.

Other rooms use ``outputs`` (what the model's answer means), ``borrowing`` (a private twin to run in
the model's place), ``evaluator`` (chunks that fit into memory, gradients, progress),
``gradient_sums`` (gradients at many points of each input), ``masked`` (answers about partly hidden
inputs), ``noise`` (draws that belong to an input) and ``precision`` (no TF32). Behind them stands
the engine, chosen through ``forms``: ``tracing`` proves what may be changed, ``norm_folding`` and
``first_layer`` save work, ``cuda_graphs``, ``recording`` and ``compiled`` save launches, and
``sameness`` compares the result with the model as it is.
"""
