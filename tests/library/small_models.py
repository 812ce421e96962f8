"""Small models of every kind, and the equations of the transformer written out again, for the tests."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from gllm_lib.models import GPT, GPTConfig, Grading

EPS = torch.finfo(torch.float64).eps
VOCABULARY, CONTEXT, WIDTH, HEADS = 11, 6, 12, 2
SMALL = (VOCABULARY, CONTEXT, WIDTH, 2, HEADS)
K = WIDTH // HEADS


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def tokens_of(batch=2, length=CONTEXT, seed=0):
    return torch.randint(VOCABULARY, (batch, length), generator=seeded(seed))


def build(config, seed=0, deviation=0.3):
    """A model in float64 whose weights, biases and norms are all at work, not at their initial zeros and ones."""
    model = GPT(config, generator=seeded(seed)).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("grading."):
                parameter.add_(torch.randn(parameter.shape, dtype=torch.float64, generator=seeded(7)) * deviation)
    if config.grading is not None and config.grading.projection:
        model.set_projection(orthogonal(config.width) + 0.05)  # its transpose is not its inverse
    return model


def orthogonal(width, seed=5):
    return torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=seeded(seed)))[0]


def tolerance(config, size=1.0):
    """Two orders of the same sums: products of length at most the hidden width differ by its eps, in each of the five
    products of a block, and a norm hands a relative error on; 64 is room for the spread of the normalised states."""
    return 64 * 5 * config.layers * max(config.hidden_width, config.width) * EPS * size


@st.composite
def configs(draw):
    """Any options that go together, with any parts graded, of a small model."""
    pick = lambda *options: draw(st.sampled_from(options))  # noqa: E731
    position, kind = pick("learned", "sinusoidal", "rotary"), pick("gelu", "relu", "swiglu", "geglu", "levels")
    grading = None
    if pick(True, True, True, False):
        heads = pick(None, [0, 1] * 3, [[0, 0.25, 0.5] * 2, [1, 0.5, 0] * 2], np.linspace(0, 1, 24).reshape(2, 2, 6))
        levels = pick((), (4, 8), (5, 4, 3))
        embedding = pick(None, [1.0, 0.5, 0.25][: len(levels) or 1], np.linspace(0, 1, WIDTH))
        output = pick(None, [0.5] * VOCABULARY, np.linspace(0, 1, VOCABULARY))
        graded = {"heads": heads, "embedding": embedding, "output": output}
        grading = Grading(
            base=pick(2.0, math.e ** (1 / 6)),
            levels=levels,
            **graded,
            after_rotary=position == "rotary" and heads is not None and pick(True, False),
            projection=pick(True, False),
            position=position == "sinusoidal" and pick(True, False),
            kappa=pick(None, 0.75),
            learned=[part for part, grades in graded.items() if grades is not None and pick(True, False)],
        )
    return GPTConfig(
        *SMALL,
        hidden=pick(None, 9),
        norm=pick("layer", "rms"),
        position=position,
        feed_forward=kind,
        bias=pick(True, False),
        tied=pick(True, False),
        head_bias=pick(True, False),
        grading=grading,
    )


def written_out(model, tokens):
    """GLLM Eqs. 6-9, 11-13, 16-18 as printed, on activations, one head at a time, without any folding."""
    config, state = model.config, model.state_dict()
    g = config.grading
    scale = lambda part: g.base ** state[f"grading.{part}"] if part in model.grades() else torch.ones(())  # noqa: E731
    p = model.grades().get("projection", torch.eye(config.width, dtype=torch.float64))
    x = state["embedding.weight"][tokens] @ (p @ torch.diag(scale("embedding").expand(config.width)).double() @ p.T)
    if config.position != "rotary":
        table = state["position.table"][: tokens.shape[1]]
        x = x + ((table * scale("embedding")) @ p.T if g.position else table)
    for i in range(config.layers):
        part = {name.removeprefix(f"blocks.{i}."): w for name, w in state.items() if name.startswith(f"blocks.{i}.")}
        x = x + attended(config, part, normed(config, part, "attention_norm", x), scale("heads"), i)
        x = x + fed(config, part, normed(config, part, "ffn_norm", x), p)
    hidden = normed(config, state, "norm", x)
    logits = hidden @ state.get("head.weight", state["embedding.weight"]).T + state.get("head.bias", 0.0)
    return logits + g.tilt * state["grading.output"] if g.output is not None else logits


def normed(config, part, name, x):
    if config.norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + config.epsilon).sqrt()
    return x * part[f"{name}.weight"] + part.get(f"{name}.bias", 0.0)


def affine(part, name, x):
    return x @ part[f"{name}.weight"].T + part.get(f"{name}.bias", 0.0)


def attended(config, part, x, scales, layer):
    query, key, value = affine(part, "attention.qkv", x).split(config.width, dim=-1)
    heads = []
    for h in range(config.heads):
        own = slice(h * K, (h + 1) * K)
        m = scales[layer, h] if scales.ndim else scales
        q, k = query[..., own], key[..., own]
        if config.position == "rotary":
            late = config.grading.after_rotary
            q, k = (turned(z, config) * m if late else turned(z * m, config) for z in (q, k))
        else:
            q, k = q * m, k * m
        future = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
        heads.append((q @ k.mT / math.sqrt(K) + future).softmax(-1) @ (value[..., own] * m))
    return affine(part, "attention.out", torch.cat(heads, dim=-1))


def turned(x, config):
    """Each pair (j, j + K/2) as a complex number, multiplied by exp(i t base**(-2 j / K))."""
    j, t = torch.arange(K // 2).double(), torch.arange(x.shape[1]).double()
    turn = torch.exp(1j * t[:, None] * config.rotary_base ** (-2 * j / K))
    z = torch.complex(x[..., : K // 2], x[..., K // 2 :]) * turn
    return torch.cat((z.real, z.imag), dim=-1)


def fed(config, part, x, p):
    act = {"relu": F.relu, "swiglu": F.silu}.get(config.feed_forward, F.gelu)
    if config.feed_forward in ("gelu", "relu"):
        return affine(part, "ffn.down", act(affine(part, "ffn.up", x)))
    if config.feed_forward != "levels":
        return affine(part, "ffn.down", act(affine(part, "ffn.gate", x)) * affine(part, "ffn.up", x))
    total, start = 0.0, 0
    for level, width in enumerate(config.level_widths):
        p_l = p[:, start : start + width]
        inner = act(affine(part, f"ffn.gate.{level}", x @ p_l)) * affine(part, f"ffn.up.{level}", x @ p_l)
        total, start = total + affine(part, f"ffn.down.{level}", inner) @ p_l.T, start + width
    return total
