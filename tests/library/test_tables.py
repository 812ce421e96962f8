"""Hashed tables: addresses against big integers, the model that holds them, and the write against the equations."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from gllm_lib.checks import FileError, InputError, InputTypeError
from gllm_lib.models import (
    GPT,
    GPTConfig,
    Grading,
    HashedTables,
    compile_grades,
    export_huggingface,
    gpt2_like,
    llama_like,
    load_model,
    parameter_count,
    save_model,
    table_ids,
)
from gllm_lib.models.tables import Tables
from gllm_lib.optim.tables import TableWrite, root_mean_square, rounded, visited
from gllm_lib.training import Recipe, train
from tests.library.small_models import seeded

V, T, D = 13, 7, 8
OPTIONS = HashedTables(17, storage="float32")


def tokens_of(batch=3, length=T, seed=0, vocabulary=V):
    return torch.randint(vocabulary, (batch, length), generator=seeded(seed))


def model_of(options=OPTIONS, seed=0, like=llama_like, **changes):
    return GPT(like(V, T, D, 2, 2, tables=options, **changes), generator=seeded(seed))


def filled(options=OPTIONS, seed=1, **changes):
    """A model whose tables are not zero."""
    model = model_of(options, **changes)
    with torch.no_grad():
        for table in model.tables.weights:
            table.copy_(torch.randn(table.shape, generator=seeded(seed)))
    return model


def by_big_integers(row, vocabulary, options):
    """Addresses in Python's integers, the n-gram as a number in radix V + 1 with its last token in the lowest place."""
    padded = [vocabulary] * (options.order - 1) + list(row)
    ids = []
    for j in range(options.copies * (options.order - 1)):
        length, rows = 2 + j // options.copies, options.modulus + 2 * j
        grams = (padded[t + options.order - length : t + options.order] for t in range(len(row)))
        ids.append([sum(z * (vocabulary + 1) ** r for r, z in enumerate(reversed(gram))) % rows for gram in grams])
    return ids


@given(
    st.integers(1, 40), st.integers(2, 5), st.integers(1, 3), st.integers(1, 10_000), st.integers(1, 6), st.randoms()
)
def test_addresses_are_those_of_big_integers(vocabulary, order, copies, modulus, length, random):
    options = HashedTables(modulus, order=order, copies=copies)
    rows = [[random.choice([0, vocabulary - 1, random.randrange(vocabulary)]) for _ in range(length)] for _ in range(2)]
    found = table_ids(torch.tensor(rows, dtype=torch.int32), vocabulary, options)
    assert found.dtype == torch.int64
    assert found.shape == (copies * (order - 1), 2, length)
    assert found.transpose(0, 1).tolist() == [by_big_integers(row, vocabulary, options) for row in rows]


def test_addresses_reach_the_last_bit_of_int64():
    """2097151 tokens make radix 2^21: trigram keys fill 63 bits, and one token more is refused."""
    vocabulary, options = 2**21 - 1, HashedTables(150855)
    row = [vocabulary - 1] * 4
    ids = table_ids(torch.tensor([row]), vocabulary, options)
    assert ids[:, 0].tolist() == by_big_integers(row, vocabulary, options)
    with pytest.raises(InputError, match=r"2\^63; give tables a lower order"):
        table_ids(torch.tensor([row]), vocabulary + 1, options)
    with pytest.raises(InputError, match="lower order"):
        gpt2_like(2**21, 4, 8, 1, 1, tables=options)


def test_tables_are_those_of_the_source():
    options = HashedTables(150855)
    assert options.rows == (150855, 150857, 150859, 150861)
    assert options.lengths == (2, 2, 3, 3)
    for width, total in ((384, 57_929_472), (512, 77_239_296)):
        assert parameter_count(llama_like(8192, 2048, width, 1, 1, tables=options))["tables"] == total


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modulus": 0}, "modulus is 0"),
        ({"modulus": 5, "order": 1}, "order is 1"),
        ({"modulus": 5, "copies": 0}, "copies is 0"),
        ({"modulus": 5, "width": 0}, "width is 0"),
        ({"modulus": 5, "places": (0, 1, 2, 2)}, "give each of 0 to 3 once"),
        ({"modulus": 5, "storage": "float16"}, "choose from 'float32', 'bfloat16'"),
        ({"modulus": 5, "width": 6}, "4 tables do not fill 6 of 8 columns"),
        ({"modulus": 5, "width": 12}, "a width of at most 8"),
        ({"modulus": 5, "order": 20, "width": 8}, "38 tables do not fill"),
        ({"modulus": 5, "order": 20, "copies": 1}, "do not fill"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        gpt2_like(V, T, D, 1, 1, tables=HashedTables(**options))


def test_values_of_another_kind_are_refused():
    with pytest.raises(InputTypeError, match=r"modulus is 2\.5"):
        HashedTables(2.5)
    with pytest.raises(InputTypeError, match="places is 3"):
        HashedTables(5, places=3)
    with pytest.raises(InputTypeError, match="give HashedTables"):
        gpt2_like(V, T, D, 1, 1, tables={"modulus": 5})
    with pytest.raises(InputTypeError, match="input_norm"):
        gpt2_like(V, T, D, 1, 1, input_norm=1)
    for bad in (V, -1):
        with pytest.raises(InputError, match="those of the vocabulary, 0 to 12"):
            table_ids(torch.tensor([[bad]]), V, OPTIONS)


def test_config_survives_json_and_names_an_unknown_field():
    config = llama_like(V, T, D, 1, 1, tables=HashedTables(5, places=(1, 0, 3, 2), width=4), input_norm=True)
    assert GPTConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(InputError, match="HashedTables has no field radix"):
        GPTConfig.from_dict({**config.to_dict(), "tables": {"radix": 3}})
    assert config.uniform().tables == config.tables


@pytest.mark.parametrize("like", [gpt2_like, llama_like])
@pytest.mark.parametrize("input_norm", [False, True])
def test_empty_tables_leave_every_bit_alone(like, input_norm):
    tokens = tokens_of()
    plain = model_of(None, like=like, input_norm=input_norm)
    for storage in ("float32", "bfloat16"):
        model = model_of(HashedTables(17, storage=storage), like=like, input_norm=input_norm)
        assert torch.equal(model(tokens), plain(tokens))
    assert not torch.equal(filled(like=like, input_norm=input_norm)(tokens), plain(tokens))


def test_what_is_added_is_the_rows_side_by_side_before_the_norm():
    tokens = tokens_of()
    for places, width in (((), None), ((2, 0, 3, 1), None), ((3, 2, 1, 0), 4)):
        options = replace(OPTIONS, places=places, width=width)
        model = filled(options, input_norm=True)
        columns, added = (width or D) // 4, torch.zeros(3, T, D)
        for b, row in enumerate(tokens.tolist()):
            for j, ids in enumerate(by_big_integers(row, V, options)):
                at = (places or range(4))[j] * columns
                added[b, :, at : at + columns] = model.tables.weights[j].detach()[ids]
        x = model.embedding.weight[tokens] + added
        expected = x / (x.square().mean(-1, keepdim=True) + model.config.epsilon).sqrt()
        torch.testing.assert_close(model.hidden(tokens, 0), expected, rtol=8 * 2**-23, atol=0)


def test_a_position_sees_its_own_ngram_and_nothing_after_it():
    model, tokens = filled(order3 := replace(OPTIONS, modulus=997)), tokens_of(1)
    before = model.tables(tokens)
    for t in range(T):
        other = tokens.clone()
        other[0, t] = (other[0, t] + 1) % V
        changed = (model.tables(other) != before).any(-1)[0].nonzero().flatten().tolist()
        assert changed == list(range(t, min(t + order3.order, T)))


@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_storage_follows_the_option(storage):
    model = model_of(HashedTables(17, storage=storage))
    kind = getattr(torch, storage)
    assert {table.dtype for table in model.tables.weights} == {kind}
    after = {table.dtype for table in model.double().tables.weights}
    assert after == {torch.float64 if storage == "float32" else torch.bfloat16}
    assert model.embedding.weight.dtype == torch.float64
    assert all(counts.dtype == torch.int32 for _, counts in model.tables.pairs())


@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_files_hold_the_tables(tmp_path, storage, kind):
    model = filled(HashedTables(17, storage=storage)).to(kind)
    again = load_model(save_model(model, tmp_path / "model.safetensors"))
    assert again.config == model.config
    for (name, mine), theirs in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, msg=name)
    assert not any("count" in name for name in load_file(tmp_path / "model.safetensors"))
    with torch.no_grad():
        model.tables.weights[2][3, 0] = math.nan
    with pytest.raises(InputError, match=r"tables\.weights\.2 is not finite"):
        save_model(model, tmp_path / "broken.safetensors")


def test_a_file_of_other_tables_is_refused(tmp_path):
    model = filled()
    model.config = replace(model.config, tables=replace(OPTIONS, modulus=18))
    with pytest.raises(FileError, match=r"tables\.weights\.0 is \(17, 2\)"):
        load_model(save_model(model, tmp_path / "model.safetensors"))


def test_compiling_carries_tables_and_exporting_refuses_them(tmp_path):
    grading = Grading(heads=(0.0, 1.0, 0.5, 0.0), embedding=(1.0,) + (0.0,) * 7)
    for storage in ("float32", "bfloat16"):
        model = filled(HashedTables(17, storage=storage), grading=grading, input_norm=True)
        twin = compile_grades(model)
        assert twin.config.grading is None
        assert torch.equal(twin(tokens_of()), model(tokens_of()))
    with pytest.raises(InputError, match="hashed tables, which transformers does not know"):
        export_huggingface(twin, tmp_path / "out")
    with pytest.raises(InputError, match="a norm of its input"):
        export_huggingface(model_of(None, input_norm=True), tmp_path / "out")


def test_counts_of_parameters_and_of_draws():
    model = model_of()
    assert parameter_count(model.config)["total"] == sum(each.numel() for each in model.parameters())
    plain = model_of(None)
    assert all(torch.equal(model.state_dict()[name], each) for name, each in plain.state_dict().items())


def backward(model, tokens, sparse=False):
    model.tables.sparse = sparse
    model.zero_grad()
    for _, counts in model.tables.pairs():
        counts.zero_()
    for some in tokens:
        model(some).logsumexp(-1).mean().backward()


@pytest.mark.parametrize("sparse", [False, True])
def test_counts_are_the_visits_of_all_backward_passes(sparse):
    model, parts = filled(), [tokens_of(seed=s) for s in range(3)]
    backward(model, parts, sparse)
    with torch.no_grad():
        model(tokens_of(seed=9))  # no gradient, no visit
    for j, (table, counts) in enumerate(model.tables.pairs()):
        ids = [by_big_integers(row, V, OPTIONS)[j] for part in parts for row in part.tolist()]
        assert counts.tolist() == np.bincount(np.ravel(ids), minlength=17 + 2 * j).tolist()
        assert table.grad.is_sparse == sparse
        rows, sums = visited(table.grad, counts)
        assert rows.tolist() == sorted(set(np.ravel(ids).tolist()))
        assert sums.shape == (len(rows), 2)


def test_gradients_are_those_of_plain_embeddings_dense_and_sparse():
    model, parts = filled().double(), [tokens_of(seed=s) for s in range(2)]
    backward(model, parts)
    dense = [table.grad.clone() for table in model.tables.weights]
    backward(model, parts, sparse=True)
    sparse = [table.grad.to_dense() for table in model.tables.weights]
    leaves = [table.detach().clone().requires_grad_() for table in model.tables.weights]
    model.tables.forward = lambda tokens: torch.cat(
        [leaf[ids] for leaf, ids in zip(leaves, table_ids(tokens, V, OPTIONS), strict=True)], -1
    )
    for part in parts:
        model(part).logsumexp(-1).mean().backward()
    for one, two, leaf in zip(dense, sparse, leaves, strict=True):
        # the same sums of at most 42 visits in another order
        torch.testing.assert_close(one, leaf.grad, rtol=42 * 2**-52, atol=42 * 2**-52)
        torch.testing.assert_close(two, leaf.grad, rtol=42 * 2**-52, atol=42 * 2**-52)


def pair_of(rows=9, columns=3, kind=torch.float32, seed=0):
    table = torch.nn.Parameter(torch.randn(rows, columns, generator=seeded(seed)).to(kind))
    counts = torch.randint(0, 3, (rows,), generator=seeded(seed + 1), dtype=torch.int32)
    table.grad = (torch.randn(rows, columns, generator=seeded(seed + 2)) * (counts > 0)[:, None]).to(kind)
    return table, counts


@given(st.integers(0, 10**6), st.floats(1e-3, 10), st.sampled_from(["float32", "bfloat16", "float64"]))
def test_the_write_is_the_printed_one(seed, lr, kind):
    table, counts = pair_of(kind=getattr(torch, kind), seed=seed)
    counts[0] = 1
    before, g, n = table.detach().clone().double(), table.grad.double(), counts.clone()
    hit = (n > 0).nonzero().flatten().tolist()
    mean = torch.stack([g[r] / n[r] for r in hit])
    root = max(math.sqrt(mean.square().sum() / (len(hit) * 3)), 1e-30)
    TableWrite([(table, counts)], lr).step()
    eps = torch.finfo(getattr(torch, "float64" if kind == "float64" else "float32")).eps
    half = 2.0**-8 if kind == "bfloat16" else 0.0  # half a unit in the last of 8 bits, relative
    for r, row in zip(hit, mean, strict=True):
        wanted = before[r] - lr * row / root
        # quotient, root, product and difference round once each, relative to what they hold
        slack = 4 * eps * (before[r].abs() + (lr * row / root).abs()) + half * wanted.abs() * (1 + 2**-8)
        assert ((table[r].double() - wanted).abs() <= slack).all()
    kept = [r for r in range(9) if r not in hit]
    assert torch.equal(table.detach()[kept].double(), before[kept])
    assert not counts.any()


def test_sparse_and_dense_gradients_write_the_same_bits():
    results = []
    for sparse in (False, True):
        model = filled(HashedTables(17))
        backward(model, [tokens_of(1)], sparse)
        write = TableWrite(model.tables.pairs(), 0.5)
        write.step()
        results.append(model.state_dict())
    assert all(torch.equal(one, two) for one, two in zip(*(each.values() for each in results), strict=True))


@settings(max_examples=30)
@given(st.integers(-50, 50), st.integers(1, 1000), st.integers(0, 100))
def test_factors_of_gradient_and_counts_change_nothing(exponent, times, seed):
    """A power of two is exact, so the bits agree; counts times k divide a row by k, up to one rounding each."""
    one, two = pair_of(seed=seed), pair_of(seed=seed)
    one[1][0] = two[1][0] = 1
    two[0].grad *= 2.0**exponent
    for each in (one, two):
        TableWrite([each], 0.5).step()
    assert torch.equal(one[0], two[0])
    three = pair_of(seed=seed)
    three[1][0] = 1
    three[1].mul_(times)
    TableWrite([three], 0.5).step()
    torch.testing.assert_close(three[0], one[0], rtol=4 * 2**-23, atol=4 * 2**-23 * 4)


def test_small_gradients_keep_their_size_and_zero_ones_write_nothing():
    table, counts = torch.nn.Parameter(torch.zeros(4, 2)), torch.ones(4, dtype=torch.int32)
    table.grad = torch.full((4, 2), 1e-28)  # its square is 0 in float32, and 1e-30 is not its root mean square
    write = TableWrite([(table, counts)], 0.25)
    write.step()
    torch.testing.assert_close(table.detach(), torch.full((4, 2), -0.25), rtol=2**-22, atol=0)
    before, table.grad = table.detach().clone(), torch.zeros(4, 2)
    counts.fill_(1)
    write.step()
    assert torch.equal(table, before)
    assert not counts.any()
    assert root_mean_square(torch.full((1, 1), 1e-32), torch.ones(1, 1)) == 1e-30


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_nothing_is_written_where_a_gradient_is_not_finite(broken):
    good, bad = pair_of(seed=3), pair_of(seed=4)
    bad[1][0] = 1
    bad[0].grad[0, 0] = broken
    before = [each.detach().clone() for pair in (good, bad) for each in pair]
    with pytest.raises(InputError, match="not finite"):
        TableWrite([good, bad], 0.1).step()
    assert all(torch.equal(one, two) for one, two in zip((*good, *bad), before, strict=True))


def test_counts_of_other_passes_are_refused_and_zero_grad_forgets_them():
    model = filled()
    backward(model, [tokens_of(1)], sparse=True)
    write = TableWrite(model.tables.pairs(), 0.1)
    for table in model.tables.weights:
        table.grad = None
    with pytest.raises(InputError, match="call zero_grad"):
        write.step()
    model(tokens_of(1, seed=5)).sum().backward()
    with pytest.raises(InputError, match="call zero_grad"):
        write.step()
    write.zero_grad()
    before = [table.detach().clone() for table in model.tables.weights]
    write.step()  # nothing was visited
    assert all(torch.equal(one, two) for one, two in zip(model.tables.weights, before, strict=True))
    model(tokens_of(1, seed=5)).sum().backward()
    write.step()
    assert not torch.equal(model.tables.weights[0], before[0])


def test_arguments_of_the_write_are_checked():
    table, counts = pair_of()
    for tables, message in (([], "there are no tables"), ([(table, counts[:3])], r"\(R, W\) and \(R,\)")):
        with pytest.raises(InputError, match=message):
            TableWrite(tables, 0.1)
    with pytest.raises(InputTypeError, match="give pairs"):
        TableWrite([table], 0.1)
    for changes in ({"lr": -1.0}, {"lr": math.nan}, {"lr": 1.0, "rounding": "up"}, {"lr": 1.0, "neumann": -1}):
        with pytest.raises(InputError):
            TableWrite([(table, counts)], **changes)


def test_the_whitened_write_starts_plain_and_ends_whitened():
    plain, ramped, full = ([pair_of(seed=8)] for _ in range(3))
    TableWrite(plain, 0.1).step()
    TableWrite(ramped, 0.1, neumann=80).step()  # strength 0: centred over the visited rows
    TableWrite(full, 0.1, neumann=0).step()
    table, counts = pair_of(seed=8)
    mean = table.grad[counts > 0] / counts[counts > 0, None]
    centred = mean - mean.mean(0)
    gram = centred.T @ centred
    for pair, wanted in ((ramped, centred), (full, centred - centred @ gram / gram.norm() / 2)):
        expected = table.detach()[counts > 0] - 0.1 * wanted / wanted.square().mean().sqrt()
        torch.testing.assert_close(pair[0][0].detach()[counts > 0], expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(plain[0][0], full[0][0])


def test_stochastic_rounding_is_unbiased_and_repeats_from_its_seed():
    value = torch.full((200_000,), 1.0 + 0.3 * 2.0**-7)  # three tenths of the way from 1 to the next bfloat16
    share = (rounded(value, torch.bfloat16, seeded(0)) > 1).double().mean().item()
    assert abs(share - 0.3) < 5 * math.sqrt(0.21 / 200_000)
    assert (rounded(-value, torch.bfloat16, seeded(0)) < -1).double().mean().item() == share
    assert (rounded(value, torch.bfloat16) == 1).all()
    tables = []
    for seed in (0, 0, 1):
        table, counts = pair_of(400, 3, torch.bfloat16)
        write = TableWrite([(table, counts)], 0.01, rounding="stochastic", seed=seed)
        write.step()
        tables.append(table.detach().clone())
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])


def test_a_write_resumes_exactly_from_its_state():
    def steps(write, table, counts, some):
        for s in some:
            counts.copy_(pair_of(40, 3, torch.bfloat16, seed=s)[1])
            table.grad = pair_of(40, 3, torch.bfloat16, seed=s)[0].grad
            write.step()

    kind = {"rounding": "stochastic", "neumann": 8}
    table, counts = pair_of(40, 3, torch.bfloat16)
    write = TableWrite([(table, counts)], 0.1, **kind)
    steps(write, table, counts, range(3))
    copy, again = torch.nn.Parameter(table.detach().clone()), torch.zeros_like(counts)
    resumed = TableWrite([(copy, again)], 0.1, **kind)
    resumed.load_state_dict(write.state_dict())
    steps(write, table, counts, range(3, 6))
    steps(resumed, copy, again, range(3, 6))
    assert torch.equal(table, copy)


def test_tables_train_under_adamw_and_resume_from_a_checkpoint(tmp_path):
    tokens, recipe = tokens_of(1, 400)[0].numpy(), Recipe(steps=6, batch=4, accumulate=2, peak=0.01, save_every=2)
    whole, cut = model_of(HashedTables(17)), model_of(HashedTables(17))
    train(whole, tokens, recipe)
    train(cut, tokens, recipe, folder=tmp_path, until=lambda history: len(history.losses) == 3)
    again = model_of(HashedTables(17), seed=5)
    train(again, tokens, recipe, folder=tmp_path)
    for (name, one), two in zip(whole.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, two), name
    assert all(table.abs().sum() > 0 for table in again.tables.weights)


def test_the_module_alone_moves_between_devices():
    with torch.device("meta"):
        tables = Tables(HashedTables(5), V, D)
    tables.to_empty(device="cpu").fill()
    assert not tables(tokens_of()).any()
