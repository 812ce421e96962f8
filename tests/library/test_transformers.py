"""An exported model gives the same logits in `transformers`, and one setting off is noticed."""

import json
import socket
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from gllm_lib.corpora.tokens import train_bpe
from gllm_lib.models import (
    Grading,
    compile_grades,
    export_huggingface,
    gpt2_like,
    llama_like,
)
from tests.library.small_models import CONTEXT, SMALL, K, build, tokens_of, tolerance

pytestmark = pytest.mark.huggingface

GRADED = Grading(levels=(4, 8), heads=[0, 0.5, 1] * 2, embedding=[0, 1], output=[0, 1] * 5 + [0.5])
BINARY = Grading(clip=8.0, levels=(4, 8), heads=[0, 1, 3] * 2, embedding=[3, 1])
PLAIN = {
    "gpt2, tied": gpt2_like(*SMALL),
    "gpt2, untied, no bias": gpt2_like(*SMALL, tied=False, bias=False),
    "gpt2, relu, hidden 9": gpt2_like(*SMALL, feed_forward="relu", hidden=9, epsilon=1e-3),
    "gpt2, sinusoidal": gpt2_like(*SMALL, position="sinusoidal"),
    "llama, swiglu": llama_like(*SMALL),
    "llama, geglu, tied": llama_like(*SMALL, feed_forward="geglu", tied=True, rotary_base=100.0, epsilon=1e-3),
    "llama, bias": llama_like(*SMALL, bias=True, hidden=9),
}
FOLDED = {
    "gpt2, heads": gpt2_like(*SMALL, grading=replace(GRADED, embedding=None, output=None)),
    "gpt2, all": gpt2_like(*SMALL, tied=False, grading=GRADED),
    "gpt2, all, tied": gpt2_like(*SMALL, grading=GRADED),
    "gpt2, learned": gpt2_like(*SMALL, tied=False, grading=replace(GRADED, learned=("heads", "embedding"))),
    "gpt2, projection": gpt2_like(*SMALL, tied=False, grading=replace(GRADED, projection=True)),
    "gpt2, position": gpt2_like(
        *SMALL, tied=False, position="sinusoidal", grading=replace(GRADED, position=True, projection=True)
    ),
    "llama, all": llama_like(*SMALL, grading=GRADED),
    "llama, after rotary": llama_like(*SMALL, grading=replace(GRADED, after_rotary=True)),
    "llama, levels": llama_like(*SMALL, feed_forward="levels", grading=replace(GRADED, projection=True)),
}


@pytest.fixture
def reload(monkeypatch):
    """A function that loads a folder with `transformers`, while any connection is an error."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.utils.logging.disable_progress_bar()

    def refuse(*_):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)

    def loaded(folder):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not any(report.values()), report  # no key is missing, unexpected or of another shape
        return model.eval()

    return loaded


def rounding(config, size, dtype=torch.float64):
    """What logits may differ by. LlamaForCausalLM computes norms and angles in float32 whatever the weights:
    2 layers + 1 norms of three roundings, and in each layer two rotations by angles up to T, off by three roundings of
    T; each is a relative error of the states, and 8 is room for what the layers after it make of that."""
    sums = tolerance(config, size) * torch.finfo(dtype).eps / torch.finfo(torch.float64).eps
    roundings = 3 * (2 * config.layers + 1) + 2 * config.layers * 3 * CONTEXT
    return sums + (config.norm == "rms") * 8 * roundings * torch.finfo(torch.float32).eps / 2 * size


def compare(model, other):
    """The largest difference of logits, and the largest logit."""
    with torch.no_grad():
        ours, theirs = model(tokens_of()), other(tokens_of()).logits
    assert ours.dtype == theirs.dtype
    return float((ours - theirs).abs().max()), float(ours.abs().max())


@pytest.mark.parametrize("kind", PLAIN)
def test_transformers_gives_the_same_logits(kind, tmp_path, reload):
    model = build(PLAIN[kind])
    other = reload(export_huggingface(model, tmp_path / "out"))
    assert type(other).__name__ == ("LlamaForCausalLM" if "llama" in kind else "GPT2LMHeadModel")
    difference, size = compare(model, other)
    assert difference <= rounding(model.config, size)


@pytest.mark.parametrize("kind", PLAIN)
def test_transformers_is_as_near_in_float32(kind, tmp_path, reload):
    exact = build(PLAIN[kind])
    model = build(PLAIN[kind]).float()
    other = reload(export_huggingface(model, tmp_path / "out"))
    assert other.dtype == torch.float32
    with torch.no_grad():
        truth = exact(tokens_of())
        ours, theirs = ((each - truth).abs().max() for each in (model(tokens_of()), other(tokens_of()).logits))
    assert theirs <= 4 * ours  # roundings of the same sums: their number and size are the same, their order is not


@pytest.mark.parametrize("kind", [kind for kind in PLAIN if "llama" in kind])
def test_llama_agrees_to_float64_where_it_computes_in_float64(kind, tmp_path, reload, monkeypatch):
    model = build(PLAIN[kind])
    other = reload(export_huggingface(model, tmp_path / "out"))
    from transformers.models.llama import modeling_llama

    monkeypatch.setattr(
        modeling_llama.LlamaRMSNorm,
        "forward",
        lambda norm, x: F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon),
    )
    tables = model.position.cosine[None], model.position.sine[None, :, K // 2 :].repeat(1, 1, 2)  # ours are signed
    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "forward", lambda *_, **__: tables)
    difference, size = compare(model, other)
    assert difference <= tolerance(model.config, size)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("gpt2, tied", "activation_function", "gelu_new"),
        ("gpt2, tied", "layer_norm_epsilon", 0.9e-5),
        ("gpt2, tied", "scale_attn_by_inverse_layer_idx", True),
        ("llama, swiglu", "hidden_act", "gelu"),
        ("llama, swiglu", "rope_parameters", {"rope_type": "default", "rope_theta": 9000.0}),
        ("llama, geglu, tied", "rms_norm_eps", 0.9e-3),
        ("llama, geglu, tied", "hidden_act", "gelu_new"),
    ],
)
def test_a_setting_that_is_nearly_right_is_noticed(kind, name, value, tmp_path, reload):
    model = build(PLAIN[kind])
    folder = export_huggingface(model, tmp_path / "out")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {name: value}))
    difference, size = compare(model, reload(folder))
    assert difference > rounding(model.config, size)


@pytest.mark.parametrize("kind", FOLDED)
def test_compiled_models_give_the_logits_of_the_graded_ones(kind, tmp_path, reload):
    model = build(FOLDED[kind])
    twin = compile_grades(model, tilt="drop")
    other = reload(export_huggingface(twin, tmp_path / "out"))
    with torch.no_grad():
        graded, theirs = model(tokens_of(), tilt=False), other(tokens_of()).logits
    size = float(graded.abs().max())
    assert (graded - theirs).abs().max() <= rounding(twin.config, size) + tolerance(model.config, size)
    with torch.no_grad():
        ungraded = build(FOLDED[kind].uniform() if "levels" not in kind else PLAIN["llama, geglu, tied"])
        assert (ungraded(tokens_of()) - theirs).abs().max() > 0.01 * size  # the grades are at work


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_powers_of_two_are_exact_as_far_as_the_file(make, dtype, tmp_path, reload):
    model = build(make(*SMALL, tied=False, grading=BINARY)).to(dtype)
    twin = compile_grades(model)
    with torch.no_grad():
        assert torch.equal(model(tokens_of()), twin(tokens_of()))
    other = reload(export_huggingface(twin, tmp_path / "out"))
    stored = twin.state_dict()["embedding.weight"]
    assert torch.equal(other.get_input_embeddings().weight, stored)
    assert torch.equal(stored, model.embedding.weight * torch.tensor([8.0] * 4 + [2.0] * 8, dtype=dtype))
    difference, size = compare(twin, other)
    assert difference <= rounding(twin.config, size, dtype)


@pytest.mark.parametrize("kind", ["gpt2, tied", "llama, swiglu"])
def test_transformers_generates_what_our_logits_say(kind, tmp_path, reload):
    model = build(PLAIN[kind])
    other = reload(export_huggingface(model, tmp_path / "out"))
    start = tokens_of(batch=1, length=2)
    found = other.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=4, do_sample=False)
    for length in range(2, CONTEXT):
        assert found[0, length] == model(found[:, :length])[0, -1].argmax()


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_transformers_reads_the_tokenizer_from_the_folder(make, tmp_path, reload):
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    text = "def f(x):\n    return x  # naïve , it 's 12345 \t\n\n"
    ours = train_bpe([text * 3], 280)
    model = build(make(280, *SMALL[1:]))
    export_huggingface(model, tmp_path / "out")
    folder = export_huggingface(model, tmp_path / "out", tokenizer=ours)  # in the place of the one without
    for kind in (AutoTokenizer, PreTrainedTokenizerFast):
        theirs = kind.from_pretrained(folder)
        for written in (text, " a  b\n", "1234 naïve don't"):
            assert theirs(written)["input_ids"] == ours.encode(written).ids
            assert theirs.decode(ours.encode(written).ids) == written
        assert len(theirs) == 280
        assert theirs.model_max_length == CONTEXT
    assert reload(folder).config.vocab_size == 280
