"""Explain any PyTorch classifier: here the Fashion-MNIST CNN that is shipped with the package.

python examples/own_model.py
"""

from sea_nn import SEA
from sea_nn.vision.shipped import load_cnn, load_sample

model, sample = load_cnn(), load_sample()  # put your own model and inputs [N, C, H, W] here
x = sample.images[[180, 100, 20]]  # an ankle boot, a sandal, a pair of trousers

sea = SEA(model, methods=("saliency", "integrated_gradients", "smooth_ig", "occlusion"))
pictures = (x * 255).byte().permute(0, 2, 3, 1).repeat(1, 1, 1, 3)  # to draw on: [N, H, W, 3]
explanation = sea.explain(x, images=pictures, labels=sample.names)

print(explanation.summary())
explanation.plot("strip", "out/own_model/strip.png")  # SEA beside its members
explanation.plot("overlay", "out/own_model/overlay.png")  # the same, over the pictures
explanation.save("out/own_model/explanation.safetensors")
print("wrote out/own_model/: strip.png, overlay.png, explanation.safetensors")
