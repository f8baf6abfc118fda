"""Explain rows of a table: breast tumours, 30 measured columns, a small network.

python examples/tabular.py          (needs scikit-learn, which ships the data)
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

from sea_nn import SEA
from sea_nn.show.plots import plot_bars

data = load_breast_cancer()
x = torch.tensor(data.data, dtype=torch.float32)
y = torch.tensor(data.target)
generator = torch.Generator().manual_seed(0)
test, train = torch.randperm(len(x), generator=generator).split([100, len(x) - 100])
x = (x - x[train].mean(0)) / x[train].std(0)  # 0, the baseline, is now the average patient

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
for _ in range(150):
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x[train]), y[train]).backward()
    optimiser.step()
right = (model(x[test]).argmax(1) == y[test]).float().mean()
print(f"{right:.0%} of {len(test)} patients that it was not trained on are classified rightly")

rows = torch.stack([x[test][y[test] == tumour][0] for tumour in (0, 1)])  # one of each class
sea = SEA(model, methods=("saliency", "integrated_gradients", "occlusion", "kernel_shap"))
names = [str(name) for name in data.feature_names]
labels = [str(name) for name in data.target_names]
explanation = sea.explain(rows, labels=labels, feature_names=names)
print(explanation.summary())
print("first column for each patient:", [names[k] for k in explanation.top(1).flatten()])
explanation.plot("strip", "out/tabular/columns.png")

# Each of ten measurements has three columns: its mean, its error, its worst value. A feature mask
# makes the three one feature, as it would the columns of a one-hot code.
measurement = torch.arange(30) % 10
grouped = sea.explain(rows, feature_mask=measurement, labels=labels, feature_names=names)
short = [name.removeprefix("mean ") for name in names[:10]]
print("first measurement for each patient:", [short[k] for k in grouped.top(1).flatten()])
titles = [f"{grouped.name(i)} {float(grouped.score[i]):.2f}" for i in range(len(rows))]
plot_bars(
    grouped.attribution[:, :10],  # a group's columns share its value
    grouped.average(grouped.maps),
    grouped.methods,
    short,
    titles,
    "out/tabular/measurements.png",
)
print("wrote out/tabular/: columns.png, measurements.png")
