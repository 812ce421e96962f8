"""What configurations and models refuse, and how they say so."""

import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from gllm_lib.checks import InputError, InputTypeError
from gllm_lib.grading import select
from gllm_lib.models import GPT, GPTConfig, Grading, HashedTables, gpt2_like, llama_like
from gllm_lib.models.tables import table_ids
from tests.library.small_models import (
    SMALL,
    WIDTH,
    K,
    seeded,
    tokens_of,
)

BAD_CONFIGS = [
    (InputError, "not divided by 5 heads", {"heads": 5}),
    (InputError, "levels .* sum to 11; they must sum to 12", {"grading": Grading(levels=(4, 7))}),
    (InputError, "even", {"position": "rotary", "heads": 4}),
    (
        InputError,
        r"heads have shape \(5,\); give \(6,\) or \(2, 6\) or \(2, 2, 6\)",
        {"grading": Grading(heads=[0] * 5)},
    ),
    (InputError, r"embedding have shape \(3,\)", {"grading": Grading(levels=(4, 8), embedding=[0, 0, 0])}),
    (InputError, r"output have shape \(4,\); give \(11,\)", {"grading": Grading(output=[0] * 4)}),
    (InputError, "after_rotary needs position", {"grading": Grading(heads=[0] * K, after_rotary=True)}),
    (InputError, "graded position is sinusoidal", {"grading": Grading(position=True)}),
    (InputError, "norm is 'batch'; choose from 'layer', 'rms'", {"norm": "batch"}),
    (InputError, "feed_forward is 'moe'", {"feed_forward": "moe"}),
    (InputError, "leaves a level", {"feed_forward": "levels", "hidden": 2, "grading": Grading(levels=(1, 11))}),
    (InputError, "layers is 0", {"layers": 0}),
    (InputError, "epsilon is nan", {"epsilon": math.nan}),
    (InputError, "hidden is 0", {"hidden": 0}),
    (InputTypeError, "width is 12.0; give a whole number", {"width": 12.0}),
    (InputTypeError, "bias is 1; give True or False", {"bias": 1}),
    (InputTypeError, "grading is a dict; give a Grading", {"grading": {}}),
    (InputTypeError, "rotary_base is '1'", {"rotary_base": "1"}),
]

BAD_GRADINGS = [
    (InputError, "base is 1.0; give a finite number above 1", {"base": 1.0}),
    (InputError, "base is inf", {"base": math.inf}),
    (InputError, "clip is 0.5; give a finite number of at least 1", {"clip": 0.5}),
    (InputError, "clip is 1e\\+300; .* at most 1e\\+09", {"base": 10, "clip": 1e300, "heads": [200] * K}),
    (InputError, "kappa is 1e\\+300; .* at most 1e\\+09", {"kappa": 1e300}),
    (InputError, "kappa is 0", {"kappa": 0.0}),
    (InputError, r"heads\[0\] is 1.00001 ", {"heads": [1.00001]}),
    (InputError, "base is inf", {"base": 10**400}),
    (InputTypeError, "clip is 2j; give a number", {"clip": 2j}),
    (InputError, r"heads\[1\] is 1.1 .* lies in \[0, 1\]", {"heads": [0, 1.1]}),
    (InputError, r"embedding\[0\] is -0.1", {"embedding": [-0.1]}),
    (InputError, r"output\[2\] is nan", {"output": [0, 0, math.nan]}),
    (InputError, r"heads\[0, 1\] is inf \(1 of 4", {"heads": [[0, math.inf], [0, 0]]}),
    (InputError, "heads is ragged", {"heads": [[0, 1], [0]]}),
    (InputError, r"embedding has shape \(1, 1\); give grades of shape \(L,\) or \(D,\)", {"embedding": [[0.0]]}),
    (InputError, r"heads has shape \(0,\); .* \(K,\), \(H, K\) or \(layers, H, K\)", {"heads": []}),
    (InputError, r"output has shape \(1, 1\); give grades of shape \(V,\)", {"output": [[0.0]]}),
    (InputTypeError, "heads holds <U", {"heads": ["a"]}),
    (InputError, "learned names 'loss'; choose from heads", {"learned": ("loss",)}),
    (InputError, "learned names 'heads', which has no grades", {"learned": ("heads",)}),
    (InputTypeError, "learned is 'heads'; give a tuple", {"learned": "heads", "heads": [0]}),
    (InputTypeError, "levels is 4; give a tuple", {"levels": 4}),
    (InputError, "levels is 0", {"levels": (4, 0)}),
    (InputTypeError, "projection is None", {"projection": None}),
    (InputError, "no heads are graded", {"after_rotary": True}),
]


@pytest.mark.parametrize(("error", "says", "changes"), BAD_CONFIGS)
def test_bad_configurations_are_refused(error, says, changes):
    with pytest.raises(error, match=says):
        replace(gpt2_like(*SMALL), **changes)


@pytest.mark.parametrize(("error", "says", "values"), BAD_GRADINGS)
def test_bad_gradings_are_refused(error, says, values):
    with pytest.raises(error, match=says):
        Grading(**values)


@pytest.mark.parametrize("make", [gpt2_like, llama_like])
def test_the_largest_scales_give_finite_logits_and_gradients(make):
    grading = Grading(base=10, clip=1e9, heads=[9] * K, embedding=[9] * WIDTH, output=[9] * 11, kappa=1e9)
    model = GPT(make(*SMALL, grading=grading), generator=seeded())
    logits = model(tokens_of())
    logits.logsumexp(-1).sum().backward()
    assert logits.isfinite().all()
    assert all(each.grad.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("kind", [Grading, GPTConfig])
def test_help_tells_of_every_field(kind):
    lines = re.findall(r"^    - (.*)$", kind.__doc__, re.MULTILINE)
    listed = [names for line in lines for names in re.findall(r"(?:^|; )([a-z_, ]+):", line)]
    assert ", ".join(listed).split(", ") == [field.name for field in fields(kind)]


def test_multipliers_of_a_selection_are_grades_as_the_help_says():
    multipliers = select([0.3, 0.7], [0.8, 0.2], clip=2.0).g
    grading = Grading(base=3.0, clip=2.0, levels=(4, 8), embedding=np.log(multipliers) / np.log(3.0))
    scale = GPT(gpt2_like(*SMALL, grading=grading), generator=seeded()).grading.scale("embedding")
    assert max(multipliers) > 1.5
    assert scale.numpy() == pytest.approx(np.repeat(multipliers, [4, 8]), rel=1e-6)  # in float32


def test_numbers_of_numpy_are_kept_as_numbers_that_json_holds():
    grading = Grading(base=np.float32(2), clip=np.int64(4), kappa=np.float16(0.5))
    config = gpt2_like(*SMALL, epsilon=np.float32(0.5), rotary_base=np.int32(100), grading=grading)
    assert GPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_bad_dictionaries_are_refused():
    good = gpt2_like(*SMALL).to_dict()
    with pytest.raises(InputError, match="no field dropout; its fields are"):
        GPTConfig.from_dict(good | {"dropout": 0.1})
    with pytest.raises(InputError, match=r"incomplete: .*'width'"):
        GPTConfig.from_dict({name: value for name, value in good.items() if name != "width"})
    with pytest.raises(InputError, match="no field grade"):
        GPTConfig.from_dict(good | {"grading": {"grade": 1}})
    with pytest.raises(InputTypeError, match="mapping"):
        GPTConfig.from_dict([1])
    with pytest.raises(InputError, match="no field dropout"):
        gpt2_like(*SMALL, dropout=0.1)


@pytest.mark.parametrize(
    ("error", "says", "tokens"),
    [
        (InputError, "token 11 is out of range; .* 0 to 10", torch.tensor([[0, 11]])),
        (InputError, "token -1 is out of range", torch.tensor([[0, -1]])),
        (InputError, "7 tokens exceeds the context of 6", torch.zeros(1, 7, dtype=torch.long)),
        (InputError, r"shape \(3,\)", torch.zeros(3, dtype=torch.long)),
        (InputError, r"shape \(2, 0\)", torch.zeros(2, 0, dtype=torch.long)),
        (InputTypeError, "float32", torch.zeros(1, 2)),
        (InputTypeError, "bool", torch.zeros(1, 2, dtype=torch.bool)),
        (InputTypeError, "complex64", torch.zeros(1, 2, dtype=torch.complex64)),
        (InputTypeError, "ndarray", np.zeros((1, 2), dtype=int)),
    ],
)
def test_bad_tokens_are_refused(error, says, tokens):
    model = GPT(gpt2_like(*SMALL), generator=seeded())
    for call in (model, model.hidden, model.attention_weights):
        with pytest.raises(error, match=says):
            call(tokens)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.uint16])
def test_tokens_of_any_integer_type_are_taken(dtype):
    model = GPT(gpt2_like(*SMALL), generator=seeded())
    assert torch.equal(model(tokens_of().to(dtype)), model(tokens_of()))


def test_bad_arguments_of_the_model_are_refused():
    for given, says in (({"generator": 0}, "of type int"), ({}, "not given")):
        with pytest.raises(InputTypeError, match=rf"generator is {says}; .* generator=torch\.Generator\(\)"):
            GPT(gpt2_like(*SMALL), **given)
    with pytest.raises(InputTypeError, match="config is a dict"):
        GPT({}, generator=seeded())
    plain = GPT(gpt2_like(*SMALL), generator=seeded())
    with pytest.raises(InputError, match="no level projections"):
        plain.set_projection(torch.eye(WIDTH))
    model = GPT(gpt2_like(*SMALL, grading=Grading(projection=True)), generator=seeded())
    for says, matrix in (
        (r"shape \(3, 3\); give \(12, 12\)", torch.eye(3)),
        ("NaN", torch.eye(WIDTH) * math.nan),
        ("singular", torch.ones(WIDTH, WIDTH)),
        ("infinity", torch.eye(WIDTH, dtype=torch.float64) * 1e200),  # finite, but not in the float32 of the model
    ):
        with pytest.raises(InputError, match=says):
            model.set_projection(matrix)
    assert torch.equal(model.grades()["projection"], torch.eye(WIDTH))
    model.set_projection(torch.eye(WIDTH) * 1e-9)  # small is not singular


def test_shapes_hold_where_they_are_checked(root):
    # the annotations of every public function are checked on a graded forward and backward pass, and on its twin
    program = """
from jaxtyping import install_import_hook
with install_import_hook("gllm_lib.models", "beartype.beartype"):
    from gllm_lib.models import GPT, Grading, compile_grades, gpt2_like, llama_like
from dataclasses import replace
import torch
tokens = torch.randint(11, (2, 5))
grading = Grading(levels=(4, 8), heads=(0.0, 1.0) * 3, embedding=(0.0, 1.0), output=(1.0,) * 11, projection=True)
for config in (gpt2_like(11, 6, 12, 2, 2, feed_forward="levels", position="sinusoidal"), llama_like(11, 6, 12, 2, 2)):
    model = GPT(replace(config, grading=grading), generator=torch.Generator())
    model(tokens).sum().backward()
    model.attention_weights(tokens)
    compile_grades(model, untie=True)(tokens)
try:
    model(tokens.float())
except Exception as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "TypeCheckError"


@pytest.mark.parametrize(
    ("tokens", "error", "told"),
    [
        ([[1, 2]], InputTypeError, "give a tensor of integers"),
        (torch.ones(1, 2), InputTypeError, "give a tensor of integers"),
        (torch.ones(1, 2) > 0, InputTypeError, "give a tensor of integers"),
        (torch.zeros(1, 0, dtype=torch.long), InputError, r"shape \(1, 0\)"),
        (torch.zeros(3, dtype=torch.long), InputError, r"shape \(3,\)"),
    ],
)
def test_rows_of_tables_are_of_token_ids(tokens, error, told):
    with pytest.raises(error, match=told):
        table_ids(tokens, 11, HashedTables(7))
