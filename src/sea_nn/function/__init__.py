"""What is learned from a model's answers about sets of features, and how sure it is.

``SetProcess`` is a Gaussian process over sets; ``find_orders`` searches the chain of sets along
which it says most; ``SetFunction`` reads it as the model's score, with intervals, gains and
evidence against. The room knows nothing of models.
"""

from sea_nn.function.function import SetFunction
from sea_nn.function.order import find_orders
from sea_nn.function.process import SetProcess

__all__ = ["SetFunction", "SetProcess", "find_orders"]
