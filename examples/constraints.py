"""Axioms as constraints: some features must count, others must not, whatever the members say.

python examples/constraints.py
"""

import torch

from sea_nn import SEA
from sea_nn.show.plots import plot_strip
from sea_nn.vision.shipped import load_cnn, load_sample

model, sample = load_cnn(), load_sample()
trousers = sample.images[sample.labels == sample.names.index("Trouser")]
x = trousers[:1]
sea = SEA(model, methods=("saliency", "integrated_gradients", "smooth_ig"))
free = sea.explain(x)

# Sensitivity(a): a person says that the gap between the legs must count: half of what the average
# pixel has in the free map, and that in every context, even after all other pixels.
required = torch.zeros(28, 28, dtype=torch.bool)
required[12:28, 13:15] = True
least = 0.5 * float(free.attribution.mean())
# Sensitivity(b): pixels that are black in every picture of trousers must not count.
forbidden = (trousers == 0).all(0)[0] & ~required
print(f"{int(required.sum())} pixels must count, {int(forbidden.sum())} must not")

bound = sea.explain(x, required=required, forbidden=forbidden, epsilon=least)
for name, explanation in (("free", free), ("bound", bound)):
    values = explanation.attribution[0, 0]
    print(
        f"{name:5}  least of a required pixel {float(values[required].min()):.2f} "
        f"(asked for: {least:.2f}), most of a forbidden one {float(values[forbidden].max()):.2f}"
    )

picture = (x * 255).byte().permute(0, 2, 3, 1).repeat(2, 1, 1, 3)
both = [torch.cat([getattr(e, part) for e in (free, bound)]) for part in ("attribution", "maps")]
plot_strip(*both, sea.methods, picture, ("free", "bound"), "out/constraints/strip.png")
print("wrote out/constraints/strip.png: the members stay, the SEA map keeps the constraints")
