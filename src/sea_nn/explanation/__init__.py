"""What SEA found: an ``Explanation`` with its maps, order, checks and ``Provenance``.

It can be sliced, summed up in text, saved to one file and loaded again; ``assemble`` makes it from
what the pipeline found, ``atomic`` is how files are written everywhere.
"""

from sea_nn.explanation.explanation import Explanation
from sea_nn.explanation.provenance import Provenance

__all__ = ["Explanation", "Provenance"]
