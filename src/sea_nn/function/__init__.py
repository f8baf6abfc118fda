"""What is learned from a model's answers about sets of features."""
