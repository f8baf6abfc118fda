"""Explain time series: four EEG channels, and whether one of them is about to be high.

python examples/time_series.py

scikit-learn ships no time series, but matplotlib does: ``eeg.dat``, 800 samples of 4 channels. The
question is made up, the recording is not, and there is something to check the answer by: nothing
should tell more about a channel's next values than its own last ones.
"""

import numpy as np
import torch
from matplotlib.cbook import get_sample_data
from torch import nn

from sea_nn import SEA

CHANNELS = ("PG3", "PG5", "PG7", "PG9")
LENGTH, AHEAD = 32, 2

with get_sample_data("eeg.dat") as file:
    eeg = torch.tensor(np.frombuffer(file.read(), float).reshape(800, 4).T, dtype=torch.float32)
starts = torch.arange(eeg.shape[1] - LENGTH - AHEAD)
x = torch.stack([eeg[:, s : s + LENGTH] for s in starts])
y = (eeg[3, starts + LENGTH + AHEAD - 1] > 0).long()
train, test = starts < 560, starts >= 560 + LENGTH  # a gap, so that no sample is in both

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv1d(4, 8, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * LENGTH, 2)
)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.03)
for _ in range(80):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x[train]), y[train]).backward()
    optimiser.step()
right = (model(x[test]).argmax(1) == y[test]).float().mean()
print(f"{right:.0%} of {int(test.sum())} later windows are foretold rightly")

sea = SEA(model, methods=("saliency", "integrated_gradients", "occlusion"))
everything = sea.explain(x[test], labels=("low", "high"), feature_names=CHANNELS)
share = everything.attribution[:, 3, -8:].sum(1) / everything.attribution.sum((1, 2))
print(
    f"the last 8 samples of PG9, {8 / x[0].numel():.0%} of the features, hold {share.mean():.0%} "
    "of the attribution (mean of all these windows)"
)
two = everything[10:150:100]
print(two.summary())
two.plot("strip", "out/time_series/series.png")
print("wrote out/time_series/series.png")
