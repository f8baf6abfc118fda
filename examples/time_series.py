"""Explain time series: four EEG channels, and whether one of them is about to be high.

python examples/time_series.py

scikit-learn ships no time series, but matplotlib does: ``eeg.dat``, 800 samples of 4 channels. The
question is made up, the recording is not, and there is something to check the answer by: nothing
tells more about a channel's next value than its own last ones.
"""

import numpy as np
import torch
from matplotlib.cbook import get_sample_data
from torch import nn

from sea_nn import SEA

CHANNELS = ("PG3", "PG5", "PG7", "PG9")
ASKED, LENGTH = 2, 32  # will PG7 be above its mean, 0, after these 32 samples of all four?

with get_sample_data("eeg.dat") as file:
    eeg = torch.tensor(np.frombuffer(file.read(), float).reshape(800, 4).T, dtype=torch.float32)
starts = torch.arange(eeg.shape[1] - LENGTH)
x = torch.stack([eeg[:, s : s + LENGTH] for s in starts])
y = (eeg[ASKED, starts + LENGTH] > 0).long()
train, test = starts < 560, starts >= 560 + LENGTH  # a gap, so that no sample is in both

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv1d(4, 8, 5, padding=2), nn.ReLU(), nn.AvgPool1d(4)),
    *(nn.Flatten(), nn.Linear(2 * LENGTH, 2)),
)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.03)
for _ in range(150):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x[train]), y[train]).backward()
    optimiser.step()
right = (model(x[test]).argmax(1) == y[test]).float().mean()
stays = ((x[test][:, ASKED, -1] > 0) == y[test]).float().mean()
print(
    f"right on {right:.0%} of {int(test.sum())} later windows; 'it stays high or low': {stays:.0%}"
)

sea = SEA(model, methods=("saliency", "integrated_gradients", "occlusion"))
later = sea.explain(x[test], labels=("low", "high"), feature_names=CHANNELS)
total = later.attribution.sum((1, 2))
own, last = later.attribution[:, ASKED].sum(1), later.attribution[:, ASKED, -4:].sum(1)
print(f"attribution on PG7: {(own / total).mean():.0%}, on its last 4: {(last / total).mean():.0%}")
print("the rest is where the network looks at what does not help, and loses to the simple guess")

two = later[20:121:100]
print(two.summary())
two.plot("strip", "out/time_series/series.png")
print("wrote out/time_series/series.png")
