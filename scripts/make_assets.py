"""Train the CNN that is shipped, and write it into src/sea_nn/vision/assets.

    python scripts/make_assets.py       # it takes minutes

SOURCES.md beside the files tells where all of them come from.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from sea_bench.data.fashion import load_fashion
from sea_nn.model.outputs import predict
from sea_nn.vision.shipped import FashionCNN

ASSETS = Path(__file__).parent.parent / "src" / "sea_nn" / "vision" / "assets"
SEED, EPOCHS, BATCH = 0, 12, 128


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of the images and shift the whole batch by up to two pixels each way."""
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    down, right = torch.randint(0, 5, (2,), generator=generator).tolist()
    return pad(images, (2, 2, 2, 2))[..., down : down + 28, right : right + 28]


def train_cnn(images: Tensor, labels: Tensor) -> FashionCNN:
    """The CNN, trained on pictures [N, 1, 28, 28] in [0, 1]."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model, n_batches = FashionCNN().train(), len(images) // BATCH
    adam = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, 3e-3, EPOCHS * n_batches)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images), generator=generator)
        for batch in order.split(BATCH)[:n_batches]:
            inputs = augment(images[batch], generator)
            loss = cross_entropy(model(inputs), labels[batch], label_smoothing=0.02)
            adam.zero_grad()
            torch.autograd.backward(loss)
            adam.step()
            schedule.step()
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {loss.item():.3f}", flush=True)
    return model.eval()


def main() -> None:
    train, test = (
        [torch.from_numpy(array) for array in load_fashion(split)] for split in ("train", "test")
    )
    model = train_cnn(train[0].unsqueeze(1) / 255, train[1])
    # The schedule is fixed and the last weights are kept: the test set chooses nothing.
    right = predict(model, test[0].unsqueeze(1) / 255, 1000).argmax(1) == test[1]
    metadata = {
        "test_accuracy": f"{float(right.float().mean()):.4f}",
        "seed": str(SEED),
        "epochs": str(EPOCHS),
        "trained_by": "scripts/make_assets.py",
        "data": "Fashion-MNIST train set, Zalando Research, MIT licence",
    }
    path = ASSETS / "fashion_cnn.safetensors"
    save_file(model.state_dict(), path, metadata)
    path.chmod(0o644)  # safetensors writes files that only their owner can read
    print(f"right: {metadata['test_accuracy']}")


if __name__ == "__main__":
    main()
