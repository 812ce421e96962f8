"""Keep a model as a file of our own, and hand a plain one over to `transformers`. Everything is safetensors.

D width, V vocabulary, T context, F width of the feed-forward block. `torch.nn.Linear` keeps (out, in); the projections
of GPT-2 in `transformers` keep (in, out).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import Tensor

from gllm_lib.checks import FileError, GllmError, InputError, InputTypeError, exchange, write_bytes
from gllm_lib.models.config import GPTConfig
from gllm_lib.models.gpt import GPT

CONFIG = "gllm_config"  # the key of our config in a file's metadata
MARK = "gllm_export"  # the key in the metadata of a file for transformers that tells it from a stranger's
# what a folder for transformers holds, by its mark: a model, or a model and its tokenizer
FILES = {"1": ["config.json", "model.safetensors"]}
FILES["2"] = [*FILES["1"], "tokenizer.json", "tokenizer_config.json"]

_GPT2 = {
    "attention_norm": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
}
_LLAMA = {
    "attention_norm": "input_layernorm",
    "attention.qkv": "self_attn.{}_proj",
    "attention.out": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
}
_HOLDS = {
    "GPT2LMHeadModel": {
        "norm": ("layer",),
        "position": ("learned", "sinusoidal"),
        "feed_forward": ("gelu", "relu"),
    },
    "LlamaForCausalLM": {
        "norm": ("rms",),
        "position": ("rotary",),
        "feed_forward": ("swiglu", "geglu"),
    },
}


def save_model(model: GPT, path: str | os.PathLike[str]) -> Path:
    """Write the weights and the config of `model`, graded or plain, to one safetensors file, whole or not at all.

    Raises InputError if a weight is not finite.
    """
    weights = _weights(model)
    metadata = {"format": "pt", CONFIG: json.dumps(model.config.to_dict(), sort_keys=True)}
    return write_bytes(path, _saved(weights, metadata))


def load_model(path: str | os.PathLike[str]) -> GPT:
    """Return the model that `save_model` wrote to `path`, of the same type and bits.

    Raises FileError if the file is missing, cut off, of another kind, or holds weights other than those of its config.
    """
    metadata, weights = _read(Path(path))
    if CONFIG not in metadata:
        raise FileError(f"{path} holds tensors but no {CONFIG} in its metadata; give a file that save_model wrote")
    try:
        config = GPTConfig.from_dict(json.loads(metadata[CONFIG]))
        with torch.device("meta"):  # allocates nothing, whatever size the file claims
            shapes = GPT(config, generator=torch.Generator(device="cpu"))
    except (GllmError, ValueError, TypeError, KeyError) as error:
        raise FileError(
            f"{path} has a config that this version does not read: {error}; save the model again"
        ) from error
    dtype = weights["embedding.weight"].dtype if "embedding.weight" in weights else torch.float32
    expected, found = _forms(shapes.to(dtype).state_dict()), _forms(weights)
    for name in sorted(expected | found):
        if expected.get(name) != found.get(name):
            raise FileError(
                f"{path} holds another model than its config says: {name} is {found.get(name, 'absent')} in the file "
                f"and {expected.get(name, 'absent')} by the config; save the model again"
            )
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise FileError(f"{path} holds a {name} that is not finite; go back to an earlier checkpoint")
    model = GPT(config, generator=torch.Generator()).to(dtype)
    model.load_state_dict(weights)
    return model


def export_huggingface(model: GPT, path: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None) -> Path:
    """Write a plain `model` to the folder `path` for GPT2LMHeadModel or LlamaForCausalLM, whole or not at all.

    With a `tokenizer`, AutoTokenizer loads it from there too. Raises InputError with the reason if neither class holds
    the model or the tokenizer has another vocabulary, and FileError if `path` holds something else.
    """
    weights, config = _weights(model), model.config
    family = _family(config)
    renamed = _gpt2_weights(weights, config) if family == "GPT2LMHeadModel" else _llama_weights(weights, config)
    settings = _gpt2_settings(config) if family == "GPT2LMHeadModel" else _llama_settings(config)
    settings |= {
        "architectures": [family],
        "dtype": str(weights["embedding.weight"].dtype).removeprefix("torch."),
        "tie_word_embeddings": config.tied,
        "vocab_size": config.vocabulary,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    mark, texts = ("1", []) if tokenizer is None else ("2", _tokenizer_files(tokenizer, config))
    tensors = {name: weight.contiguous() for name, weight in renamed}
    written = [_json(settings), _saved(tensors, {"format": "pt", MARK: mark}), *texts]
    return _write_folder(Path(path), dict(zip(FILES[mark], written, strict=True)))


def _json(settings: dict[str, object]) -> bytes:
    return (json.dumps(settings, indent=2, sort_keys=True) + "\n").encode()


def _tokenizer_files(tokenizer: Tokenizer, config: GPTConfig) -> list[bytes]:
    """Return tokenizer.json and the settings by which `transformers` takes it as it stands."""
    if not isinstance(tokenizer, Tokenizer):
        raise InputTypeError(f"tokenizer is a {type(tokenizer).__name__}; give a tokenizers.Tokenizer")
    size = tokenizer.get_vocab_size()
    if size != config.vocabulary:
        raise InputError(
            f"the tokenizer has {size} pieces and the model a vocabulary of {config.vocabulary}; give the tokenizer of "
            "the tokens that the model was trained on"
        )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context,
        "clean_up_tokenization_spaces": False,
    }
    return [tokenizer.to_str(pretty=True).encode(), _json(settings)]


def _family(config: GPTConfig) -> str:
    """Return the class of `transformers` that holds a model of this config; raises InputError with the reason."""
    if config.grading is not None:
        raise InputError("the model is graded, which transformers does not know; export compile_grades(model)")
    if config.tables is not None or config.input_norm:
        what = "hashed tables" if config.tables is not None else "a norm of its input"
        raise InputError(f"the model has {what}, which transformers does not know; keep it with save_model")
    if config.qk_norm:
        raise InputError(
            "the model norms queries and keys, which neither class does, and a norm lets no scale after it pass into "
            "the weights before it; keep it with save_model"
        )
    if config.head_bias:
        raise InputError(
            "the head has a bias, which neither GPT2LMHeadModel nor LlamaForCausalLM holds; "
            'compile_grades(model, tilt="drop") gives the calibrated model without it'
        )
    for family, allowed in _HOLDS.items():
        if all(getattr(config, option) in values for option, values in allowed.items()):
            return family
    given = ", ".join(f"{option}={getattr(config, option)!r}" for option in ("norm", "position", "feed_forward"))
    kinds = "; ".join(
        f"{family} takes " + ", ".join(f"{option} {' or '.join(values)}" for option, values in allowed.items())
        for family, allowed in _HOLDS.items()
    )
    raise InputError(f"no class holds {given}: {kinds}; build such a model, or keep this one with save_model")


def _gpt2_weights(weights: dict[str, Tensor], config: GPTConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under the names of GPT2LMHeadModel, projections transposed, absent biases as zeros."""
    yield "transformer.wte.weight", weights["embedding.weight"]
    yield "transformer.wpe.weight", weights["position.table"]
    parts = {"norm": "transformer.ln_f"}
    for layer in range(config.layers):
        parts |= {f"blocks.{layer}.{ours}": f"transformer.h.{layer}.{theirs}" for ours, theirs in _GPT2.items()}
    for ours, theirs in parts.items():
        weight = weights[f"{ours}.weight"]
        yield f"{theirs}.weight", weight.T if weight.ndim == 2 else weight
        bias = weights.get(f"{ours}.bias")
        yield f"{theirs}.bias", weight.new_zeros(len(weight)) if bias is None else bias
    if not config.tied:
        yield "lm_head.weight", weights["head.weight"]


def _llama_weights(weights: dict[str, Tensor], config: GPTConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under the names of LlamaForCausalLM, queries, keys and values apart."""
    parts = {"embedding": "model.embed_tokens", "norm": "model.norm"} | ({} if config.tied else {"head": "lm_head"})
    for layer in range(config.layers):
        parts |= {f"blocks.{layer}.{ours}": f"model.layers.{layer}.{theirs}" for ours, theirs in _LLAMA.items()}
    for ours, theirs in parts.items():
        for kind in ("weight", "bias"):
            weight = weights.get(f"{ours}.{kind}")
            if weight is None:
                continue
            apart = "qkv" if ours.endswith("qkv") else "-"  # the rows of qkv are the queries, then the keys, the values
            for letter, piece in zip(apart, weight.chunk(len(apart)), strict=True):
                yield f"{theirs.format(letter)}.{kind}", piece


def _gpt2_settings(config: GPTConfig) -> dict[str, object]:
    return {
        "model_type": "gpt2",
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.hidden_width,
        "activation_function": config.feed_forward,
        "layer_norm_epsilon": config.epsilon,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def _llama_settings(config: GPTConfig) -> dict[str, object]:
    return {
        "model_type": "llama",
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "head_dim": config.head_width,
        "intermediate_size": config.hidden_width,
        "hidden_act": {"swiglu": "silu", "geglu": "gelu"}[config.feed_forward],
        "rms_norm_eps": config.epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": 0.0,
    }


def _weights(model: GPT) -> dict[str, Tensor]:
    """Return the state of `model` on the CPU; raises InputError if a weight is not finite."""
    if not isinstance(model, GPT):
        raise InputTypeError(f"model is a {type(model).__name__}; give a GPT")
    weights = {name: weight.detach().cpu().contiguous() for name, weight in model.state_dict().items()}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise InputError(f"{name} is not finite; go back to a checkpoint from before the run diverged")
    return weights


def _saved(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Return the bytes of a safetensors file with the metadata in the order given; safetensors puts them in any."""
    data = save(tensors, metadata)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end]) | {"__metadata__": metadata}
    return data[:8] + json.dumps(header, separators=(",", ":")).encode().ljust(end - 8) + data[end:]


def _forms(weights: dict[str, Tensor]) -> dict[str, str]:
    """Return shape and type of each weight, as told in an error."""
    return {name: f"{tuple(weight.shape)} {weight.dtype}" for name, weight in weights.items()}


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return metadata and tensors of a safetensors file; raises FileError if it is missing or not whole."""
    if not path.is_file():
        raise FileError(f"{path} is not there or is a folder; give the file that save_model wrote")
    try:
        with safe_open(path, framework="pt") as handle:
            return handle.metadata() or {}, {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} is cut off or no safetensors file ({error}); give a whole copy, or save the model again"
        ) from error


def _write_folder(path: Path, files: dict[str, bytes]) -> Path:
    """Write `files` into the folder `path`, whole or not at all, in the place of an earlier export."""
    target = path.absolute()
    if target.is_symlink() or (target.exists() and not _replaceable(target)):
        raise FileError(f"{path} is no folder that export_huggingface wrote; give a new or an empty folder")
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        for name, data in files.items():
            write_bytes(fresh / name, data)
        exchange(fresh, target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return path


def _replaceable(target: Path) -> bool:
    """Whether a folder is empty or an earlier export, by the mark in its weights, with nothing added."""
    names = os.listdir(target) if target.is_dir() else [""]
    if FILES["1"][1] not in names:
        return not names
    try:
        mark = _read(target / FILES["1"][1])[0].get(MARK, "")
    except FileError:
        return False
    return set(names) == set(FILES.get(mark, ()))
