"""Verdicts on the rows of PyTorch models, which must agree with what PyTorch computes."""

import io
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from inferd.backends.pytorch.export import Export
from inferd.backends.pytorch.rows.verdict import verdict_on_export, verdict_on_script
from inferd.backends.pytorch.script import Script
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.tensor.dtype import DataType

CPU, ROWS = torch.device("cpu"), 4


class Module(nn.Module):
    """Calls a function with modules and tensors."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.modules_ = function, nn.ModuleList(modules)

    def forward(self, *tensors):
        return self.function(self.modules_, *tensors)


def of(function, *modules):
    return Module(function, *modules)


def attention(modules, x):
    batch, time, width = x.shape
    parts = modules[0](x).view(batch, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    query, keys, contents = parts.unbind(0)
    mixed = functional.scaled_dot_product_attention(query, keys, contents, is_causal=True)
    return modules[1](mixed.transpose(1, 2).reshape(batch, time, width))


def attention_by_hand(modules, x):
    batch, time, width = x.size()
    parts = modules[0](x).chunk(3, dim=-1)
    query, keys, contents = (one.reshape(batch, time, 2, -1).transpose(1, 2) for one in parts)
    scores = query @ keys.transpose(-2, -1) / 1.7
    hidden = torch.tril(torch.ones(time, time)) == 0
    shares = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return modules[1]((shares @ contents).transpose(1, 2).contiguous().view(batch, time, width))


def first_token(modules, x):
    return torch.cat([torch.zeros(1, 1, 6).expand(x.shape[0], -1, -1), x], 1)


def positions(modules, x):
    return modules[0](x) + modules[1](torch.arange(x.shape[1]))


def written_view(modules, x):
    copy = x * 1
    turned = copy.t()
    turned.add_(turned.cumsum(1))
    return copy


def written_part(modules, x):
    copy = x * 1
    left, _ = copy.chunk(2, 1)
    left.add_(left.cumsum(0))
    return copy


def written_parts(modules, x):
    copy = x * 1
    left, _ = copy.tensor_split(2, 1)
    left.add_(left.cumsum(0))
    return copy


def hidden_by_place(modules, x):
    words = modules[0].weight
    return functional.scaled_dot_product_attention(x, words, words, is_causal=True)


def running_means(modules, x):
    state = modules[0]
    means = state.running_mean, state.running_var
    functional.instance_norm(x, *means, use_input_stats=True)
    return x + state.running_mean.view(3, 1, 1)


def counted_calls(modules, x):
    state = modules[0]
    means = state.running_mean, state.running_var
    functional.batch_norm(state.weight.diag(), *means, training=True)
    return x + state.running_mean


def other_places(modules, x):
    places = torch.arange(x.shape[0]).unsqueeze(1)
    return x[torch.cat([places, places * 0], 1).narrow(1, 1, 1).squeeze(1)]


IMAGE, TOKENS, IDS = (3, 8, 8), (5, 6), (5, torch.int64)

INDEPENDENT = {
    "mlp": (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(1)), (6,)),
    "written in place": (
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(8, 3)),
        (6,),
    ),
    "batch norm": (nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU()), (6,)),
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64, 3),
        ),
        IMAGE,
    ),
    "pooled": (
        nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(1)),
        IMAGE,
    ),
    "layer norm": (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)), TOKENS),
    "group norm": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4)), IMAGE),
    "lstm": (of(lambda m, x: m[0](x)[0], nn.LSTM(6, 4, batch_first=True)), TOKENS),
    "gru's last": (of(lambda m, x: m[0](x)[0][:, -1], nn.GRU(6, 4, batch_first=True)), TOKENS),
    "both ways": (
        of(lambda m, x: m[0](x)[0], nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True)),
        TOKENS,
    ),
    "heads": (
        of(lambda m, x: m[0](x, x, x)[0], nn.MultiheadAttention(6, 2, batch_first=True)),
        TOKENS,
    ),
    "encoder": (nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), TOKENS),
    "attention": (of(attention, nn.Linear(6, 18), nn.Linear(6, 6)), TOKENS),
    "by hand": (of(attention_by_hand, nn.Linear(6, 18), nn.Linear(6, 6)), TOKENS),
    "view": (of(lambda m, x: x.view(x.shape[0], -1).sum(1, keepdim=True)), (2, 3)),
    "embedding": (nn.Embedding(9, 4), IDS),
    "positions": (of(positions, nn.Embedding(9, 4), nn.Embedding(20, 4)), IDS),
    "first token": (of(first_token), TOKENS),
    "mean of tokens": (of(lambda m, x: x.mean(1)), TOKENS),
    "top columns": (of(lambda m, x: x.topk(2, dim=1)[0]), (6,)),
    "sorted columns": (of(lambda m, x: x.sort(-1).values), (6,)),
    "argmax": (of(lambda m, x: x.argmax(1)), (6,)),
    "two outputs": (
        of(lambda m, x: (m[0](x), m[1](x).sigmoid()), nn.Linear(6, 2), nn.Linear(6, 3)),
        (6,),
    ),
    "equation": (of(lambda m, x: torch.einsum("bij,bkj->bik", x, x)), TOKENS),
    "upsampled": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2)), IMAGE),
    "shuffled": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.PixelShuffle(2)), IMAGE),
    "transposed": (nn.ConvTranspose2d(3, 2, 2, stride=2), IMAGE),
    "signal": (nn.Sequential(nn.Conv1d(5, 4, 3, padding="same"), nn.ReLU6()), TOKENS),
    "rolled columns": (of(lambda m, x: x.roll(1, 1)), (6,)),
    "flipped columns": (of(lambda m, x: x.flip(1)), (6,)),
    "normalised": (of(lambda m, x: functional.normalize(x, dim=1)), (6,)),
    "stacked": (of(lambda m, x: torch.stack([x, x * 2], 1)), (6,)),
    "chosen": (of(lambda m, x: torch.where(x > 0, x, x * 0.1)), (6,)),
    "instance norm": (nn.InstanceNorm2d(3), IMAGE),
    "padded": (of(lambda m, x: functional.pad(x, (1, 2))), (6,)),
    "picked": (of(lambda m, x: x[:, torch.tensor([2, 0, 1])]), (6,)),
    "one hot": (of(lambda m, x: functional.one_hot(x, 9)), IDS),
    "no noise": (nn.Sequential(nn.RReLU(), nn.FeatureAlphaDropout()), IMAGE),
    "cosine": (of(lambda m, x: functional.cosine_similarity(x[:, :3], x[:, 3:], dim=-1)), (6,)),
    "distance": (of(lambda m, x: functional.pairwise_distance(x[:, :3], x[:, 3:])), (6,)),
    "other axes": (of(lambda m, x: x.swapaxes(1, 2).softmax(1)), TOKENS),
    "merged time": (
        of(lambda m, x: m[0](x.reshape(-1, 6)).reshape(x.shape[0], -1, 4), nn.Linear(6, 4)),
        TOKENS,
    ),
}

DEPENDENT = {
    "softmax": (of(lambda m, x: x.softmax(0)), (6,)),
    "sum": (of(lambda m, x: x / x.sum(0, keepdim=True)), (6,)),
    "mean of everything": (of(lambda m, x: x - x.mean()), (6,)),
    "largest": (of(lambda m, x: x - x.max()), (6,)),
    "deviation": (of(lambda m, x: x / x.std(0)), (6,)),
    "norm": (of(lambda m, x: x / x.norm()), (6,)),
    "cumulative sum": (of(lambda m, x: x.cumsum(0)), (6,)),
    "sorted": (of(lambda m, x: x.sort(0).values), (6,)),
    "top": (of(lambda m, x: x - x.topk(1, dim=0)[0]), (6,)),
    "flipped": (of(lambda m, x: x.flip(0)), (6,)),
    "rolled": (of(lambda m, x: x.roll(1, 0)), (6,)),
    "rolled through all": (of(lambda m, x: x.roll(1)), (6,)),
    "moved": (of(lambda m, x: torch.cat([x[1:], x[:1]])), (6,)),
    "first for all": (of(lambda m, x: x - x[0]), (6,)),
    "training": (nn.BatchNorm1d(6, track_running_stats=False), (6,)),
    "time first": (of(lambda m, x: m[0](x)[0], nn.LSTM(6, 4)), TOKENS),
    "across": (of(lambda m, x: (x @ x.t()).softmax(-1) @ x), (6,)),
    "heads across": (of(lambda m, x: m[0](x, x, x)[0], nn.MultiheadAttention(6, 2)), TOKENS),
    "another order": (of(lambda m, x: x.t().reshape(x.shape[0], -1)), (6,)),
    "distances": (of(lambda m, x: (x[None] - x[:, None]).pow(2).sum(1)), (6,)),
    "range": (of(lambda m, x: (x - x.amin()) / (x.amax() - x.amin())), (6,)),
    "random": (of(lambda m, x: x + torch.rand_like(x)), (6,)),
    "added in place": (of(lambda m, x: x.clone().add_(x.cumsum(0))), (6,)),
    "by their number": (of(lambda m, x: x / x.shape[0]), (6,)),
    "numbered": (of(lambda m, x: x + torch.arange(x.shape[0]).unsqueeze(1)), (6,)),
    "as many weights": (
        of(lambda m, x: x + m[0].weight[: x.shape[0]].sum(), nn.Linear(5, 3000)),
        (6,),
    ),
    "no row": (of(lambda m, x: x.squeeze()), (6,)),
    "cosine of columns": (of(lambda m, x: x * functional.cosine_similarity(x, x + 1, dim=0)), (6,)),
    "distance of rows": (of(lambda m, x: x + functional.pairwise_distance(x.t(), x.t() * 2)), (6,)),
    "noise of slopes": (of(lambda m, x: functional.rrelu(x, training=True)), (6,)),
    "turned axes": (of(lambda m, x: x.swapaxes(0, 1).softmax(1).swapaxes(0, 1)), (6,)),
    "written to a view": (of(written_view), (6,)),
    "written to a part": (of(written_part), (6,)),
    "places of zeros": (of(lambda m, x: x[torch.zeros_like(torch.arange(x.shape[0]))]), (6,)),
    "order of places": (
        of(lambda m, x: x[torch.arange(x.shape[0]).unsqueeze(1).argsort(1).squeeze(1)]),
        (6,),
    ),
    "other places": (of(other_places), (6,)),
    "written to parts of no known number": (of(written_parts), (6,)),
    "hidden by place": (of(hidden_by_place, nn.Linear(6, 5)), (6,)),
    "running means": (of(running_means, nn.InstanceNorm2d(3, track_running_stats=True)), IMAGE),
    "counted calls": (of(counted_calls, nn.BatchNorm1d(6)), (6,)),
    "noise": (of(lambda m, x: x + torch.zeros(6).uniform_().view(6)), (6,)),
    "noisy slope": (
        of(lambda m, x: x + torch.rrelu(-torch.ones(6), 0.1, 0.9, True).view(6)),
        (6,),
    ),
}

NUMBERED = {
    "among lengths": ((6,), "if 2 in x.shape:\n    x = x * 2\nreturn x"),
    "among numbers": ((6,), "if 2 in [x.size(0), 5]:\n    x = x * 2\nreturn x"),
    "a key": ((6,), "d = {x.size(0): x}\nif 2 in d:\n    x = x * 2\nreturn x"),
    "a text": ((6,), "d = {str(x.size(0)): x}\nif '2' in d:\n    x = x * 2\nreturn x"),
    "filling": ((6,), "return functional.pad(x, [1, 1], value=float(x.size(0)))"),
    "epsilon": ((6,), "return functional.layer_norm(x, [6], eps=float(x.size(0)))"),
    "keepdim": ((6,), "return x.sum(1, keepdim=x.size(0) > 1)"),
    "descending": ((6,), "return x.sort(1, descending=x.size(0) > 1)[0]"),
    "largest": ((6,), "return x.topk(2, 1, x.size(0) > 1)[0]"),
    "exponent": ((6,), "return x.norm(p=float(x.size(0)), dim=1)"),
    "shift": ((6,), "return x.roll(x.size(0), 1)"),
    "hidden": (
        (5, 6),
        "return functional.scaled_dot_product_attention(x, x, x, is_causal=x.size(0) > 1)",
    ),
    "scale": (
        (5, 6),
        "return functional.scaled_dot_product_attention(x, x, x, scale=1.0 / x.size(0))",
    ),
    "divisor": ((1, 4, 4), "return functional.avg_pool2d(x, 2, divisor_override=x.size(0))"),
    "one row": ((6,), "return x.expand(1, 6)"),
    "grown": ((6,), "y = torch.zeros(1, 6)\ny += x\nreturn y"),
    "bytes": ((6,), "return x[torch.arange(x.size(0), dtype=torch.uint8)]"),
    "twice the rows": ((6,), "if 2 * x.size(0) == 4:\n    x = x * 2\nreturn x"),
    "joined lists": ((6,), "a = [1] + [0]\nreturn x.softmax(a[1])"),
    "length": ((6,), "return x / len(x)"),
    "ones": ((6,), "return x - x.sum(1 - int(torch.ones([1])), keepdim=True)"),
    "a filled tensor": ((6,), "return x.softmax(1 - int(torch.full([], 1)))"),
    "rounded down": (
        (6,),
        "return x.softmax(int(torch.floor_divide(self.axes[0] - 4, 2)))",
    ),
    "a formatted text": (
        (6,),
        "if '{}'.format(x.size(0)) == '2':\n    x = x * 2\nreturn x",
    ),
    "strides": (
        (6,),
        "return torch.ops.aten._reshape_alias(x, [x.size(0), 6], [0, 1]).clone()",
    ),
    "other images": (
        (4, 6),
        "return torch.native_group_norm(x, None, None, 1, 4, 6, 2, 1e-5)[0]",
    ),
    "made smaller": (
        (6,),
        "y = torch.stack([x, x], 0)\ntorch.add(x.unsqueeze(0), 1, out=y)\n"
        "return y.view(2, -1).view(2, x.size(0), -1).transpose(0, 1)",
    ),
    "parts of numbers": (
        (6,),
        "a, b = self.axes.unbind(0)\nreturn x - x.sum(int(b), keepdim=True)",
    ),
}
"""Shapes, and bodies of scripts whose answers change with the number of rows, or fail for two."""

SAID = {
    "script": 31,
    "export": 31,
}
"""Of the dependent ones, how many are known to be so, by format; the others stay open."""


def sample(shape, rows):
    if shape[-1] is torch.int64:
        return torch.randint(0, 9, (rows, *shape[:-1]))
    return torch.randn(rows, *shape)


def script_verdict(module, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return verdict_on_made(torch.jit.trace(module, sample(shape, 3), check_trace=False), shape)


def verdict_on_made(made, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = io.BytesIO()
        torch.jit.save(made, file)
        file.seek(0)
        script = Script(torch, torch.jit.load(file).eval(), CPU)
    is_ids = shape[-1] is torch.int64
    dims = shape[:-1] if is_ids else shape
    given = ModelInput("x__0", DataType.INT64 if is_ids else DataType.FP32, tuple(dims))
    output = ModelOutput("y__0", DataType.FP32, (-1,))
    config = ModelConfig("m", max_batch_size=8, input=(given,), output=(output,))
    return verdict_on_script(script, config)


def export_verdict(module, shape):
    of_dims = ({0: torch.export.Dim.AUTO},)
    shapes = (of_dims,) if isinstance(module, Module) else of_dims
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (sample(shape, 3),), dynamic_shapes=shapes)
    return verdict_on_export(Export(torch, program, CPU))


VERDICTS = {"script": script_verdict, "export": export_verdict}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_together_are_as_rows_alone_and_are_proved_to_be(name):
    module, shape = INDEPENDENT[name]
    module.eval()
    rows = sample(shape, ROWS)
    with torch.no_grad():
        for form, verdict_on in VERDICTS.items():
            verdict = verdict_on(module, shape)
            assert verdict.rows == "independent", (form, verdict)
        whole = module(rows)
        alone = [module(rows[n : n + 1]) for n in range(ROWS)]
    outputs = [[one] if torch.is_tensor(one) else one for one in (whole, *alone)]
    for many, *ones in zip(*outputs, strict=True):
        torch.testing.assert_close(torch.cat(ones), many, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", VERDICTS)
def test_rows_that_depend_on_each_other_are_never_called_independent(form):
    with torch.no_grad():
        found = {
            name: VERDICTS[form](module.eval(), shape)
            for name, (module, shape) in DEPENDENT.items()
        }
    assert not [name for name, verdict in found.items() if verdict.rows == "independent"]
    assert len([one for one in found.values() if one.rows == "dependent"]) >= SAID[form], found


SCRIPTED = {
    "pool": (nn.MaxPool2d(2), IMAGE),
    "groups": (nn.GroupNorm(3, 6), (6,)),
    "groups of images": (nn.GroupNorm(1, 3), IMAGE),
    "instances": (nn.InstanceNorm2d(3), IMAGE),
    "resized": (nn.Upsample(size=(5, 5), mode="bicubic"), IMAGE),
    "convolutions": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten()),
        IMAGE,
    ),
    "padded": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), IMAGE),
    "dropped": (nn.Sequential(nn.Linear(6, 6), nn.Dropout(inplace=True)), (6,)),
}
"""Layers that are scripted, whose code looks at shapes before it computes."""


@pytest.mark.parametrize("name", SCRIPTED)
def test_rows_of_scripted_layers_are_independent(name):
    module, shape = SCRIPTED[name]
    rows = sample(shape, ROWS)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made = torch.jit.script(module.eval())
        assert are_alike(made, rows)
    assert verdict_on_made(made, shape).rows == "independent"


def test_the_length_of_a_tensor_is_that_of_its_first_dim():
    module = scripted("return x.view(len(x), 2, 3).sum(2)")
    assert verdict_on_made(module, (6,)).rows == "independent"


def scripted(body):
    """Return a script of the lines `body`."""

    class Scripted(torch.jit.ScriptModule):  # a class that is made once has the first script's code
        def __init__(self):
            super().__init__()
            self.register_buffer("axes", torch.tensor([1, 0]))
            lines = "\n    ".join(body.split("\n"))
            self.define(f"def forward(self, x):\n    {lines}\n")

    return Scripted()


def are_alike(module, rows):
    """Tell whether `module` makes the same of rows together as of each alone."""
    alone = torch.cat([module(rows[n : n + 1]) for n in range(len(rows))])
    try:
        whole = module(rows)
    except RuntimeError:
        return False
    return whole.shape == alone.shape and torch.allclose(whole, alone, atol=1e-5)


@pytest.mark.parametrize("name", NUMBERED)
def test_scripts_that_look_at_the_number_of_rows_are_never_called_independent(name):
    shape, body = NUMBERED[name]
    rows = torch.arange(2 * torch.Size(shape).numel()).reshape(2, *shape) % 7 + 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = scripted(body)
        assert not are_alike(module, rows)
    assert verdict_on_made(module, shape).rows != "independent"


def test_a_result_that_is_a_view_of_what_is_returned_leaves_the_question_open():
    def written_result(modules, x):
        copy = x * 1
        torch.einsum("bi->bi", copy).copy_(torch.cdist(x, x) @ x)
        return copy

    assert export_verdict(of(written_result), (6,)).rows == "open"


def test_rows_that_are_added_to_a_product_without_rows_do_not_run_together():
    def larger(modules, x):
        return torch.addmm(x.t(), modules[0].weight, torch.ones(1, 1)).t()

    program = of(larger, nn.Linear(1, 6))
    assert export_verdict(program, (6,)).rows == "dependent"


def test_means_that_come_with_normal_rows_are_no_rows():
    def normal(modules, x):
        fixed = modules[0]
        weights = fixed.weight, fixed.bias, fixed.running_mean, fixed.running_var
        return torch._native_batch_norm_legit_no_training(x, *weights, 0.1, 1e-5)

    layer = nn.BatchNorm1d(6)
    assert export_verdict(of(lambda m, x: normal(m, x)[0], layer), (6,)).rows == "independent"
    assert export_verdict(of(lambda m, x: normal(m, x)[1], layer), (6,)).rows == "dependent"


def test_shares_of_each_head_have_a_dim_more():
    heads = nn.MultiheadAttention(6, 2, batch_first=True)

    def shares(modules, x):
        of_heads = modules[0](x, x, x, average_attn_weights=False)[1]
        return of_heads.transpose(-3, -2).softmax(0).transpose(-3, -2)

    module = of(shares, heads).eval()
    rows = sample(TOKENS, 2)
    with torch.no_grad():
        found = script_verdict(module, TOKENS)
        whole, alone = module(rows), [module(rows[n : n + 1]) for n in range(2)]
    assert not torch.allclose(whole, torch.cat(alone))
    assert (found.rows, "softmax" in found.reason) == ("dependent", True)


def test_time_first_is_no_batch():
    module, shape = DEPENDENT["time first"]
    for verdict_on in VERDICTS.values():
        assert not verdict_on(module.eval(), shape).has_batch_dim


def test_an_operator_that_is_not_known_leaves_the_question_open():
    unknown = of(lambda m, x: torch.erfinv(x))
    for verdict_on in VERDICTS.values():
        verdict = verdict_on(unknown, (6,))
        assert verdict.rows == "open"
        assert "erfinv" in verdict.reason


def test_a_tensor_of_the_model_that_is_written_to_leaves_the_question_open():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x):
            self.seen.add_(1)
            return x + self.seen

    verdict = script_verdict(Counting().eval(), (6,))
    assert (verdict.rows, "writes" in verdict.reason) == ("open", True)
