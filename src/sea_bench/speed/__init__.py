"""How fast: the paper's core, learning, members, metrics, texts and whole data sets."""
