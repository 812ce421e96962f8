"""A model kept as a file comes back bit for bit; an export has the names and forms of its class, or is refused."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import load_file, save_file

from gllm_lib.checks import FileError, InputError, InputTypeError
from gllm_lib.corpora.tokens import train_bpe
from gllm_lib.models import (
    GPT,
    Grading,
    compile_grades,
    export,
    export_huggingface,
    gpt2_like,
    llama_like,
    load_model,
    save_model,
)
from tests.library.small_models import CONTEXT, SMALL, build, configs, orthogonal, seeded, tokens_of

GRADED = Grading(levels=(4, 8), heads=[0, 0.5, 1] * 2, embedding=[0, 1], output=[0, 1] * 5 + [0.5])
GPT2, LLAMA = gpt2_like(*SMALL), llama_like(*SMALL)


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path):
    model = build(gpt2_like(257, *SMALL[1:]))
    with pytest.raises(InputError, match="tokenizer has 256 pieces and the model a vocabulary of 257; give"):
        export_huggingface(model, tmp_path / "out", tokenizer=train_bpe(["a"], 256))
    with pytest.raises(InputTypeError, match=r"tokenizer is a str; give a tokenizers\.Tokenizer"):
        export_huggingface(model, tmp_path / "out", tokenizer="gpt2")
    assert not list(tmp_path.iterdir())


def test_an_export_with_its_tokenizer_is_replaced_and_one_that_was_added_to_is_not(tmp_path):
    model = build(gpt2_like(256, *SMALL[1:]))
    folder = export_huggingface(model, tmp_path / "out", tokenizer=train_bpe(["a"], 256))
    assert set(contents(folder)) == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    tokenizer = (folder / "tokenizer.json").read_bytes()
    export_huggingface(model, folder)
    assert set(contents(folder)) == {"config.json", "model.safetensors"}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes(tokenizer)
    with pytest.raises(FileError, match="is no folder that export_huggingface wrote"):
        export_huggingface(model, folder)


def test_exporting_imports_no_transformers(root):
    script = "import sys, gllm_lib.models; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)


def test_a_model_made_in_another_default_type_comes_back_bit_for_bit(tmp_path):
    torch.set_default_dtype(torch.float64)
    try:
        model = GPT(LLAMA, generator=seeded())
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(load_model(save_model(model, tmp_path / "model.safetensors"))(tokens_of()), model(tokens_of()))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("make", "length"), [(gpt2_like, "n_positions"), (llama_like, "max_position_embeddings")])
def test_settings_that_logits_do_not_show(make, length, tied, tmp_path):
    folder = export_huggingface(build(make(*SMALL, tied=tied)), tmp_path / "out")
    told = json.loads((folder / "config.json").read_text())
    assert (told[length], told["tie_word_embeddings"], told["vocab_size"]) == (CONTEXT, tied, 11)
    assert told["bos_token_id"] is told["eos_token_id"] is None  # else token 0 or 1 would end a text


def test_names_and_forms_of_gpt2(tmp_path):
    model = build(gpt2_like(11, 6, 12, 1, 2, tied=False))
    folder = export_huggingface(model, tmp_path / "out")
    assert sorted(file.name for file in folder.iterdir()) == ["config.json", "model.safetensors"]
    weights, own = load_file(folder / "model.safetensors"), model.state_dict()
    layer = {f"{part}.{kind}" for part in ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
             for kind in ("weight", "bias")}  # fmt: skip
    outside = {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"} | {f"h.0.{name}" for name in layer}
    assert set(weights) == {f"transformer.{name}" for name in outside} | {"lm_head.weight"}
    assert torch.equal(weights["transformer.h.0.attn.c_attn.weight"], own["blocks.0.attention.qkv.weight"].T)
    assert torch.equal(weights["transformer.h.0.mlp.c_proj.bias"], own["blocks.0.ffn.down.bias"])
    assert "lm_head.weight" not in load_file(
        export_huggingface(build(gpt2_like(*SMALL)), tmp_path / "tied") / "model.safetensors"
    )


def test_names_and_forms_of_llama(tmp_path):
    model = build(llama_like(11, 6, 12, 1, 2))
    weights = load_file(export_huggingface(model, tmp_path / "out") / "model.safetensors")
    parts = [f"self_attn.{letter}_proj" for letter in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    layer = {f"layers.0.{part}.weight" for part in [*parts, "input_layernorm", "post_attention_layernorm"]}
    outside = {f"model.{name}" for name in layer | {"embed_tokens.weight", "norm.weight"}}
    assert set(weights) == outside | {"lm_head.weight"}
    rows = torch.cat([weights[f"model.layers.0.self_attn.{letter}_proj.weight"] for letter in "qkv"])
    assert torch.equal(rows, model.state_dict()["blocks.0.attention.qkv.weight"])


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (gpt2_like(*SMALL, grading=Grading(heads=[0.5] * 6)), r"graded.*compile_grades\(model\)"),
        (gpt2_like(*SMALL, feed_forward="levels"), "feed_forward='levels'"),
        (gpt2_like(*SMALL, head_bias=True), r'head has a bias.*compile_grades\(model, tilt="drop"\)'),
        (gpt2_like(*SMALL, norm="rms"), "norm='rms', position='learned'.*GPT2LMHeadModel takes norm layer"),
        (gpt2_like(*SMALL, position="rotary"), "position learned or sinusoidal"),
        (gpt2_like(*SMALL, feed_forward="swiglu"), "feed_forward gelu or relu"),
        (llama_like(*SMALL, norm="layer"), "LlamaForCausalLM takes norm rms"),
        (llama_like(*SMALL, position="sinusoidal"), "position rotary"),
        (llama_like(*SMALL, feed_forward="gelu"), "feed_forward swiglu or geglu"),
    ],
)
def test_what_no_class_holds_is_refused_with_the_reason(config, says, tmp_path):
    with pytest.raises(InputError, match=says):
        export_huggingface(build(config), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [save_model, export_huggingface])
def test_only_models_are_written(write, tmp_path):
    with pytest.raises(InputTypeError, match="model is a dict; give a GPT"):
        write({}, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_tilt_is_refused_until_dropped(tmp_path):
    model = build(gpt2_like(*SMALL, tied=False, grading=GRADED))
    with pytest.raises(InputError, match="head has a bias"):
        export_huggingface(compile_grades(model), tmp_path / "out")
    export_huggingface(compile_grades(model, tilt="drop"), tmp_path / "out")


def test_an_export_takes_the_place_of_an_export_and_of_nothing_else(tmp_path, monkeypatch):
    folder = tmp_path / "deep" / "out"
    export_huggingface(build(LLAMA), folder)
    export_huggingface(build(GPT2), folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert json.loads(before["config.json"])["model_type"] == "gpt2"

    def failing(path, data):
        if Path(path).name == "model.safetensors":
            raise OSError("no space left")
        return written(path, data)

    written = export.write_bytes
    monkeypatch.setattr(export, "write_bytes", failing)
    with pytest.raises(OSError, match="no space"):
        export_huggingface(build(LLAMA), folder)
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert [each.name for each in folder.parent.iterdir()] == ["out"]
    (folder / "thesis.tex").write_text("years of work")
    for taken in (folder, folder / "thesis.tex"):
        with pytest.raises(FileError, match="is no folder that export_huggingface wrote"):
            export_huggingface(build(GPT2), taken)
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_files_of_one_model_have_the_same_bytes(tmp_path):
    model = build(GPT2)
    exported = {(export_huggingface(model, tmp_path / "out") / "model.safetensors").read_bytes() for _ in range(20)}
    assert len(exported) == len({save_model(model, tmp_path / "own").read_bytes() for _ in range(20)}) == 1


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("weights", ["stranger", "broken", "absent"])
def test_a_model_of_somebody_else_is_not_replaced(weights, tmp_path):
    folder = export_huggingface(build(GPT2), tmp_path / "out")
    tensors = load_file(folder / "model.safetensors")
    if weights == "stranger":  # as transformers writes it, once the export was trained on
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    elif weights == "broken":
        (folder / "model.safetensors").write_bytes(b"not ours")
    else:
        (folder / "model.safetensors").unlink()
    before = contents(folder)
    with pytest.raises(FileError, match="is no folder that export_huggingface wrote"):
        export_huggingface(build(LLAMA), folder)
    assert contents(folder) == before
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("goal", ["export", "empty", "nowhere"])
def test_a_link_is_not_replaced(goal, tmp_path):
    export_huggingface(build(GPT2), tmp_path / "export")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / goal)
    with pytest.raises(FileError, match="is no folder that"):
        export_huggingface(build(GPT2), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["empty", "export", "link"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_interrupted_replacement_leaves_the_old_export(error, tmp_path, monkeypatch):
    folder = export_huggingface(build(GPT2), tmp_path / "out")
    before, rename = contents(folder), Path.rename

    def interrupted(source, target):
        if source.name == ".out.new":
            raise error
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(error):
        export_huggingface(build(LLAMA), folder)
    monkeypatch.undo()
    assert contents(folder) == before
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    export_huggingface(build(LLAMA), folder)
    assert contents(folder) != before


@settings(max_examples=25)
@given(config=configs())
def test_a_file_gives_the_model_back_bit_for_bit(config):
    model, tokens = build(config), tokens_of()
    with TemporaryDirectory() as folder:
        for dtype in (torch.float64, torch.float32):
            model.to(dtype)
            again = load_model(save_model(model, Path(folder) / "model.safetensors"))
            assert again.config == config
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
            assert again.grades().keys() == model.grades().keys()
            assert torch.equal(again(tokens), model(tokens))
            assert again(tokens).dtype == dtype


def test_a_loaded_model_keeps_learned_grades_and_what_is_trained(tmp_path):
    model = build(gpt2_like(*SMALL, grading=replace(GRADED, projection=True, learned=("heads",))))
    with torch.no_grad():
        model.grading.heads.copy_(torch.rand(model.grading.heads.shape, generator=seeded()))
    model.set_projection(orthogonal(12, seed=1))
    again = load_model(save_model(model, tmp_path / "model.safetensors"))
    for part, grades in model.grades().items():
        assert torch.equal(again.grades()[part], grades)
    trained = [[name for name, each in m.named_parameters() if each.requires_grad] for m in (model, again)]
    assert trained[0] == trained[1]


@pytest.mark.parametrize("kept", [0, 4, 9, 500, -1])
def test_a_file_that_was_cut_off_is_refused(kept, tmp_path):
    path = save_model(build(GPT2), tmp_path / "model.safetensors")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(FileError, match="cut off or no safetensors"):
        load_model(path)


class Trap:
    """What a pickle may hold: a call that is made as soon as it is opened."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_other_files_are_refused_and_no_pickle_is_opened(tmp_path):
    torch.save({"embedding.weight": Trap(tmp_path / "sprung")}, tmp_path / "model.pt")
    with pytest.raises(FileError, match="cut off or no safetensors"):
        load_model(tmp_path / "model.pt")
    assert not (tmp_path / "sprung").exists()
    folder = export_huggingface(build(GPT2), tmp_path / "out")
    with pytest.raises(FileError, match="no gllm_config in its metadata"):
        load_model(folder / "model.safetensors")
    for absent in (folder, tmp_path / "absent"):
        with pytest.raises(FileError, match="not there or is a folder"):
            load_model(absent)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layers": 3}, "blocks.2.attention.out.bias is absent in the file and .* by the config"),
        ({"layers": 1}, r"blocks.1.* in the file and absent by the config"),
        ({"vocabulary": 10**13}, r"embedding.weight is \(11, 12\) .* and \(10000000000000, 12\)"),
        ({"vocabulary": 12}, r"embedding.weight is \(11, 12\) torch.float64 in the file and \(12, 12\)"),
        ({"grading": {"heads": [0.5] * 6}}, "grading.heads is absent in the file"),
        ({"heads": 5}, "a config that this version does not read: width 12 is not divided"),
        ({"colour": "red"}, "no field colour"),
        ({"grading": 3}, "a config that this version does not read"),
        (None, "a config that this version does not read"),
    ],
)
def test_a_file_with_another_config_is_refused(change, says, tmp_path):
    model = build(gpt2_like(*SMALL))
    path = save_model(model, tmp_path / "model.safetensors")
    text = "{" if change is None else json.dumps(model.config.to_dict() | change)
    save_file(model.state_dict(), path, {"gllm_config": text})
    with pytest.raises(FileError, match=says):
        load_model(path)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_neither_leave_nor_enter(value, tmp_path):
    model = build(gpt2_like(*SMALL))
    path = save_model(model, tmp_path / "model.safetensors")
    before = path.read_bytes()
    with torch.no_grad():
        model.norm.bias[3] = value
    for write in (save_model, export_huggingface):
        with pytest.raises(InputError, match="bias is not finite"):
            write(model, path if write is save_model else tmp_path / "out")
    assert path.read_bytes() == before
    save_file(model.state_dict(), path, {"gllm_config": json.dumps(model.config.to_dict())})
    with pytest.raises(FileError, match="bias that is not finite"):
        load_model(path)


def test_weights_of_mixed_types_are_refused(tmp_path):
    model = build(gpt2_like(*SMALL))
    state = model.state_dict() | {"norm.bias": model.norm.bias.detach().half()}
    save_file(state, tmp_path / "model.safetensors", {"gllm_config": json.dumps(model.config.to_dict())})
    with pytest.raises(FileError, match=r"norm\.bias is .*float16 in the file and .*float64 by the config"):
        load_model(tmp_path / "model.safetensors")
