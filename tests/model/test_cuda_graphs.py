"""Passes of one shape are recorded on a GPU; what changes in a model is always noticed.

What decides when to record and what to trust is tested on any machine, with a recording that runs
its function again; graphs themselves need a CUDA device.
"""

import gc
import threading

import pytest
import torch
from torch import Tensor, nn

from sea_nn.errors import InputError, MemberError
from sea_nn.members.compute import compute_maps
from sea_nn.model import borrowing, forms, recording
from sea_nn.model import cuda_graphs as replay
from sea_nn.model.sameness import same_gradients
from sea_nn.model.tracing import Layers, recall_layers
from tests.helpers.recorder import Again, build, compare, find_kept, images, make_evaluator

PAPER = ("saliency", "integrated_gradients", ("smooth_ig", {"n_samples": 2, "n_steps": 20}))


def explain(model, x: Tensor, **options) -> dict[str, Tensor]:
    return compute_maps(model, x, 1, PAPER, **options).maps


def count_inputs(sizes):
    """The model, noting how many inputs each of its passes has."""

    class Counting(nn.Sequential):
        def forward(self, x):
            if isinstance(x, Tensor):
                sizes.append(len(x))
            return super().forward(x)

    return Counting(*build())


def test_a_shape_that_comes_back_is_recorded_and_no_map_changes(recorder):
    model, x = build(), images()
    expected = explain(lambda v: model(v), x)  # a plain function is never recorded
    assert compare(explain(model, x), expected)
    assert recorder.made == 0
    assert compare(explain(model, x), expected)
    # The look at the inputs and a pass for each member; folded gradients were compared before.
    assert recorder.made == 4
    for seed in range(3):
        y = images() + seed
        assert compare(explain(model, y), explain(lambda v: model(v), y))
    assert recorder.made == 4
    assert recorder.replayed == 3 + 3 * 4  # the first look came before its recording


def test_passes_of_one_sweep_have_one_shape(recorder):
    sizes: list[int] = []
    model = count_inputs(sizes)
    maps = compute_maps(model, images(3), 1, "integrated_gradients", internal_batch_size=40).maps
    passes = [size for size in sizes if size > 3]
    assert set(passes) == {38}  # 150 points are 38, 38, 38 and 36
    kept = find_kept(model)
    assert [p.recording is not None for k, p in kept.passes.items() if k[0] == 38] == [True]
    expected = compute_maps(lambda v: model(v), images(3), 1, "integrated_gradients").maps
    assert compare(maps, expected)


def change_in_place(model):
    with torch.no_grad():
        model[0].weight.mul_(1.5)


def change_data(model):
    model[0].weight.data.mul_(1.5)


def change_statistics(model):
    model[1].running_mean.add_(1)


def replace_tensor(model):
    model[7].weight = nn.Parameter(model[7].weight.detach() * 2)


def replace_layer(model):
    model[5] = nn.Tanh()


@pytest.mark.parametrize(
    "change", [change_in_place, change_data, change_statistics, replace_tensor, replace_layer]
)
def test_a_model_that_changes_is_folded_and_recorded_anew(recorder, change):
    model, x = build(), images()
    for _ in range(3):
        before = explain(model, x)
    change(model)
    expected = explain(lambda v: model(v), x)
    assert not compare(before, expected, 0.01)
    for _ in range(3):
        assert compare(explain(model, x), expected)


def test_the_description_sees_what_a_recording_could_not(recorder):
    evaluator = make_evaluator(build(), images())
    state = replay.describe(evaluator)
    assert replay.describe(evaluator) == state
    benchmark = torch.backends.cudnn.benchmark
    try:
        torch.backends.cudnn.benchmark = not benchmark
        assert replay.describe(evaluator) != state
    finally:
        torch.backends.cudnn.benchmark = benchmark
    weight = evaluator.module[0].weight
    weight.data = weight.data.clone()
    assert replay.describe(evaluator) != state


SETTINGS = {"scale": 1.0}


class Scaled(nn.Module):
    """Keeps a number where no description of the model would find it."""

    def __init__(self):
        super().__init__()
        self.inner = build()

    def forward(self, x):
        return self.inner(x) * SETTINGS["scale"]


class Deaf(Again):
    """A recording that, like a graph, does not see what happens in Python."""

    def __init__(self, run, device) -> None:
        super().__init__(run, device)
        del self.run

    def replay(self) -> Tensor:
        Again.replayed += 1
        return self.output


@pytest.mark.parametrize("n", [2, replay.FEW + 1])
def test_hidden_state_is_noticed_by_the_answer(recorder, monkeypatch, n):
    monkeypatch.setattr(replay, "Recording", Deaf)
    monkeypatch.setitem(SETTINGS, "scale", 1.0)
    model, x = Scaled(), images(n)
    for _ in range(3):
        before = compute_maps(model, x, None, PAPER)
    SETTINGS["scale"] = -1.0
    after = compute_maps(model, x, None, PAPER)
    expected = compute_maps(lambda v: model(v), x, None, PAPER)
    assert torch.equal(after.target, expected.target)
    assert not torch.equal(after.target, before.target)
    assert torch.allclose(after.outputs, -before.outputs)
    assert compare(after.maps, expected.maps)


def test_an_error_of_the_callers_is_theirs_whatever_is_kept(recorder):
    model, x = build(), images()
    for _ in range(3):
        explain(model, x)
    with pytest.raises(InputError, match="out of range"):
        compute_maps(model, x, 99, PAPER)
    with pytest.raises(InputError, match="could not run on x"):
        explain(model, x[:, :2])
    calls, kept = [], find_kept(model)

    def nowhere(model, x, target):
        calls.append(1)
        return torch.full_like(x, float("nan"))

    with pytest.raises(MemberError, match="nowhere returned NaN"):
        compute_maps(model, x, 1, (*PAPER, nowhere))
    assert len(calls) == 1
    assert find_kept(model) is kept
    skipped = compute_maps(model, x, 1, (*PAPER, nowhere), on_error="skip")
    assert set(skipped.failed) == {"nowhere"}
    assert compare(skipped.maps, explain(lambda v: model(v), x))
    assert "nowhere" not in skipped.evaluations


def test_a_later_call_asks_for_no_more_room_than_the_first(recorder):
    sizes: list[int] = []
    model = count_inputs(sizes)
    for _ in range(3):
        sizes.clear()
        compute_maps(model, images(8), 1, PAPER, internal_batch_size=2)
        assert max(sizes) == 2


def test_models_that_someone_listens_to_are_never_recorded(recorder):
    model, x, calls = build(), images(), []
    handle = model[5].register_forward_hook(lambda *_: calls.append(1))
    for _ in range(3):
        explain(model, x)
    assert recorder.made == 0
    count = len(calls)
    explain(model, x)
    assert len(calls) > count
    handle.remove()
    for _ in range(2):
        explain(model, x)
    assert recorder.made == 4
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not replay.is_eligible(make_evaluator(model, x))
    finally:
        handle.remove()


@pytest.mark.parametrize("daemon", [False, True])
def test_recording_waits_until_no_other_thread_could_be_disturbed(recorder, monkeypatch, daemon):
    monkeypatch.setattr(recording, "_ALONE_UNTIL", "99")
    model, x, done = build(), images(), threading.Event()
    other = threading.Thread(target=done.wait, daemon=daemon)
    other.start()
    try:
        for _ in range(3):
            explain(model, x)
        assert recorder.made == (4 if daemon else 0)
    finally:
        done.set()
        other.join()
    expected = explain(lambda v: model(v), x)
    for _ in range(2):
        assert compare(explain(model, x), expected)
    assert recorder.made == 4


def test_folded_gradients_are_compared_once_for_a_twin_and_logits_in_every_call(
    recorder, monkeypatch
):
    compared = []

    def count(*given):
        compared.append(1)
        return same_gradients(*given)

    monkeypatch.setattr(forms, "same_gradients", count)
    model, x = build(), images()
    for seed in range(4):
        explain(model, x + seed)
    assert len(compared) == 1
    model[5] = nn.Tanh()
    explain(model, x)
    assert len(compared) == 2
    explain(model, images(20))  # too many for a recorded look
    monkeypatch.setattr(forms, "same_outputs", lambda *given: torch.tensor(False))
    assert compare(explain(model, images(20)), explain(lambda v: model(v), images(20)))
    assert recall_layers(borrowing._IDLE[model].module) == Layers()


def test_members_that_put_rules_on_layers_are_not_replayed_without_them(recorder):
    model, x = build(), images()
    chosen = ("integrated_gradients", "saliency", "guided_backprop", "deconvolution", "deeplift")
    expected = compute_maps(lambda v: model(v), x, 1, chosen[:2]).maps
    expected |= {name: compute_maps(model, x, 1, name).maps[name] for name in chosen[2:]}
    for _ in range(4):
        assert compare(compute_maps(model, x, 1, chosen).maps, expected)
    assert recorder.replayed


def test_further_arguments_are_never_recorded(recorder):
    class Gained(nn.Module):
        def forward(self, x, gain):
            return x.flatten(1)[:, :3] * gain

    x = images()
    for gain in (1.0, 2.0, 3.0):
        maps = compute_maps(Gained(), x, 1, "integrated_gradients", additional_forward_args=gain)
        expected = gain * x.flatten(1)[:, 1]
        assert torch.allclose(maps.maps["integrated_gradients"].flatten(1)[:, 1], expected)
    assert recorder.made == 0


def test_a_model_that_cannot_be_recorded_runs_as_it_is_and_is_not_tried_again(
    recorder, monkeypatch
):
    tries = []

    def fail(run, device):
        tries.append(1)
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(replay, "Recording", fail)
    model, x = build(), images()
    expected = explain(lambda v: model(v), x)
    for _ in range(4):
        assert compare(explain(model, x), expected)
    assert len(tries) == 1


def test_passes_make_room_for_others_and_large_ones_are_not_kept(recorder, monkeypatch):
    model = build()
    evaluator = make_evaluator(model, images())
    need = evaluator.footprint().gradient
    monkeypatch.setattr(replay, "find_room", lambda device: 40 * need)
    kept = replay.keep(evaluator, None)
    assert kept.find_pass(evaluator, 21) is None
    for size in (20, 12, 8):
        kept.find_pass(evaluator, size).run(evaluator, images()[:1], evaluator.target[:1])
    assert [kind[0] for kind in kept.passes] == [20, 12, 8]
    kept.find_pass(evaluator, 20).run(
        evaluator, images()[:1], evaluator.target[:1]
    )  # 12 now rested longest
    kept.find_pass(evaluator, 11)
    assert [kind[0] for kind in kept.passes] == [20, 8, 11]
    replay.release()
    assert not kept.passes


def test_what_is_kept_goes_with_the_model(recorder, monkeypatch):
    monkeypatch.setattr(replay, "Recording", Deaf)
    model, x = build(), images()
    for _ in range(3):
        explain(model, x)
    assert len(replay._KEPT) == 1
    del model
    gc.collect()
    assert len(replay._KEPT) == 0


def test_all_recordings_of_a_device_use_one_stream(monkeypatch):
    """Each stream costs 32 MiB for good: cuBLAS keeps a workspace for it."""
    device, made = [0], []
    monkeypatch.setattr(recording, "_ASIDE", {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: device[0])
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: made.append(device) or object())
    first = recording.find_side_stream()
    assert recording.find_side_stream() is first
    device[0] = 1
    assert recording.find_side_stream() is not first
    assert made == [0, 1]


def test_nothing_is_kept_on_a_cpu():
    for _ in range(3):
        explain(build(), images())
    assert not replay._KEPT


class Attentive(nn.Module):
    """Patches, attention and layer norms; no convolution norms to fold."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patch, self.norm = nn.Conv2d(3, 16, 4, 4), nn.LayerNorm(16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.block(self.norm(tokens)).mean(1))


class Waiting(nn.Module):
    """Looks at its input on the host, so it cannot be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = build()

    def forward(self, x):
        return self.inner(x) * (1.0 if x.abs().sum().item() > 0 else 2.0)


@pytest.fixture
def exact():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    replay._KEPT.clear()
    yield
    torch.backends.cudnn.allow_tf32 = before
    replay._KEPT.clear()
    torch.cuda.empty_cache()


@pytest.mark.parametrize("make", [build, Attentive])
def test_cuda_replays_give_the_maps_of_the_cpu(exact, make):
    model, x = make().eval(), images()
    expected = explain(model, x)
    there = make().eval().cuda()
    for _ in range(4):
        assert compare(explain(there, x.cuda()), expected, 5e-3)
    kept = find_kept(there)
    assert all(p.recording is not None for p in kept.passes.values())
    assert all(look[1] is not None for look in kept.looks.values())
    other = images() + 1
    assert compare(explain(there, other.cuda()), explain(model, other), 5e-3)
    pieces = explain(there, other.cuda(), internal_batch_size=16)
    assert compare(pieces, explain(model, other), 5e-3)


@pytest.mark.parametrize(
    "change", [change_in_place, change_data, change_statistics, replace_tensor, replace_layer]
)
def test_cuda_replays_follow_a_model_that_changes(exact, change):
    model, x = build().cuda(), images().cuda()
    for _ in range(4):
        explain(model, x)
    change(model.cpu())
    model.cuda()
    for _ in range(4):
        assert compare(explain(model, x), explain(lambda v: model(v), x), 5e-3)
    if change is not replace_layer:
        with torch.no_grad():
            model[0].weight.data.mul_(0.5)  # on the GPU, behind PyTorch's back
        assert compare(explain(model, x), explain(lambda v: model(v), x), 5e-3)


def test_cuda_models_that_wait_run_as_they_are_and_leave_the_generator_usable(exact):
    model, x = Waiting().eval().cuda(), images().cuda()
    expected = explain(Waiting().eval(), images())
    stream, state = torch.cuda.current_stream(), torch.cuda.get_rng_state()
    for _ in range(3):
        assert compare(explain(model, x), expected, 5e-3)
    assert borrowing._IDLE[model].module in replay._REFUSED
    assert torch.cuda.current_stream() == stream
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert torch.cuda.get_sync_debug_mode() == 0
    assert torch.randn(3, device="cuda").isfinite().all()


def test_a_capture_that_breaks_half_way_leaves_the_device_usable(exact):
    x, stream = torch.ones(4, device="cuda"), torch.cuda.current_stream()
    calls = []

    def run():
        calls.append(1)
        if len(calls) > 1:
            x.sum().item()  # only while it is captured
        return x * 2

    with pytest.raises(Exception, match=r"captur"):
        replay.Recording(run, x.device)
    assert torch.cuda.current_stream() == stream
    assert torch.randn(3, device="cuda").isfinite().all()
    again = replay.Recording(lambda: x * 3, x.device)
    x.fill_(5)
    assert torch.equal(again.replay().cpu(), torch.full((4,), 15.0))


def test_cuda_recordings_leave_other_threads_alone(exact):
    x, stop, wrong = torch.ones(4, device="cuda"), threading.Event(), []

    def wait():
        while not stop.is_set():
            try:
                (x * 2).sum().item()
            except RuntimeError as error:
                wrong.append(str(error))

    other = threading.Thread(target=wait, daemon=True)
    other.start()
    made = [replay.Recording(lambda: x * 3, x.device) for _ in range(5)]
    stop.set()
    other.join()
    assert not wrong
    assert all(torch.equal(one.replay().cpu(), torch.full((4,), 3.0)) for one in made)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cuda_replays_under_autocast(exact, dtype):
    model, x = build().cuda(), images().cuda()
    expected = explain(build(), images())
    for _ in range(4):
        found = explain(model, x, autocast=dtype)
    assert any(p.recording is not None for p in find_kept(model).passes.values())
    for name in expected:
        a, b = found[name].cpu().flatten(1), expected[name].flatten(1)
        assert nn.functional.cosine_similarity(a, b).min() > 0.99
