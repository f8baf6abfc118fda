"""The research bench: data sets, classifiers and the experiments behind docs/results."""
