"""One map for a class: where do the members look in trousers, over many pictures of them?

python examples/class_map.py
"""

from sea_nn import SEA, ensemble_class
from sea_nn.show.plots import plot_class_map
from sea_nn.vision.shipped import load_cnn, load_sample

model, sample = load_cnn(), load_sample()
trouser = sample.names.index("Trouser")
x = sample.images[sample.labels == trouser]
x = x[model(x).argmax(1) == trouser]  # a class map is about what the model recognises
print(f"{len(x)} pictures that the model takes for trousers")

explanation = SEA(model, methods=("saliency", "integrated_gradients", "occlusion")).explain(x)

# All heatmaps of all pictures supervise one scoring function, which is read once.
class_map = ensemble_class(explanation.maps)
rows, columns = (class_map.order[0, :5] // 28).tolist(), (class_map.order[0, :5] % 28).tolist()
print("the first five pixels (row, column):", list(zip(rows, columns, strict=True)))

pictures = (x * 255).byte().permute(0, 2, 3, 1).repeat(1, 1, 1, 3)
plot_class_map(class_map.attribution, pictures, "Trouser", "out/class_map/trouser.png")
print("wrote out/class_map/trouser.png")
