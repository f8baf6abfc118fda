"""Axioms as constraints: some features must count, others must not, whatever the members say.

python examples/constraints.py
"""

import torch

from sea_nn import SEA
from sea_nn.data.fashion import load_cnn, load_sample
from sea_nn.plots import plot_strip

model, sample = load_cnn(), load_sample()
x = sample.images[sample.labels == sample.names.index("Trouser")][:1]
sea = SEA(model, methods=("saliency", "integrated_gradients", "smooth_ig"))

# Sensitivity(b): pixels that are black in every picture cannot carry information.
forbidden = (sample.images == 0).all(0)[0]
# Sensitivity(a): the gap between the legs is what tells trousers from a dress, says a person.
required = torch.zeros(28, 28, dtype=torch.bool)
required[14:26, 13:15] = True
print(f"{int(forbidden.sum())} pixels must not count, {int(required.sum())} must")

free = sea.explain(x)
bound = sea.explain(x, forbidden=forbidden, required=required, epsilon=1e-3)
for name, explanation in (("free", free), ("bound", bound)):
    values = explanation.attribution[0, 0]
    print(
        f"{name:5}  largest value of a forbidden pixel {float(values[forbidden].max()):.5f}, "
        f"smallest of a required one {float(values[required].min()):.5f}"
    )

picture = (x * 255).byte().permute(0, 2, 3, 1).repeat(1, 1, 1, 3)
maps = torch.stack([free.attribution[:, 0], forbidden[None].float(), required[None].float()], 1)
names = ("without constraints", "forbidden", "required")
plot_strip(bound.attribution, maps, names, picture, ["Trouser"], "out/constraints/strip.png")
print("wrote out/constraints/strip.png")
