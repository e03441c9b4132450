"""Collectives are read from the text of a compiled program as often as they run."""

from collections import Counter

import jax
import jax.numpy as jnp
import pytest

from whyattention.measure.communication import Collective, calls, collectives, sent_bytes

PROGRAM = """HloModule jit_f, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%body (state: (s32[], f32[4,2])) -> (s32[], f32[4,2]) {
  %permute = f32[4,2]{1,0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %mask = pred[8]{0} collective-permute(%m), channel_id=1, source_target_pairs={{0,1},{1,0}}
}

%condition (state: (s32[], f32[4,2])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (p: f32[4,2]) -> f32[4,2] {
  %while = (s32[], f32[4,2]{1,0}) while(%t), condition=%condition, body=%body, backend_config={TURNS}
  ROOT %all-reduce = (f32[4,2]{1,0}, bf16[3]{0}) all-reduce(%a, %b), replica_groups=[1,2]<=[2], to_apply=%add
}
"""
TURNS = '"known_trip_count":{"n":"7"},"known_init_step":{"init":"0"}'


def test_a_loop_counts_for_every_turn_and_a_tuple_once():
    counted = collectives(PROGRAM.replace("TURNS", TURNS))
    assert counted == {
        Collective("collective-permute", 32): 7,
        Collective("collective-permute", 8): 7,
        Collective("all-reduce", 38): 1,
    }
    assert calls(counted) == {"collective-permute": 14, "all-reduce": 1}
    assert sent_bytes(counted, devices=2) == 7 * (32 + 8) + 38


def test_the_condition_of_a_loop_is_looked_at_once_more_than_its_body_runs():
    asked = PROGRAM.replace("ROOT %less", "%all = f32[] all-reduce(%x), to_apply=%add\n  ROOT %less")
    assert collectives(asked.replace("TURNS", TURNS))[Collective("all-reduce", 4)] == 8


def test_a_loop_of_unknown_length_is_refused():
    with pytest.raises(ValueError, match="collective-permute in a loop of unknown length"):
        collectives(PROGRAM.replace("TURNS", ""))


@pytest.mark.parametrize(
    ("instruction", "kind", "size"),
    [
        ("f32[8]{0} all-reduce-start(%x), channel_id=1", "all-reduce", 32),
        ("(f32[2]{0}, f32[16]{0}) all-gather-start(%x), dimensions={0}", "all-gather", 64),
        ("(f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%x)", "collective-permute", 32),
        ("c64[4]{0} all-to-all(%x)", "all-to-all", 32),
        ("f16[4]{0} reduce-scatter(%x), dimensions={0}", "reduce-scatter", 8),
    ],
)
def test_other_forms(instruction, kind, size):
    text = f"ENTRY %main (x: f32[8]) -> f32[8] {{\n  %c = {instruction}\n  %d = f32[8] {kind}-done(%c)\n}}"
    assert collectives(text) == Counter({Collective(kind, size): 1})


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all-reduce", 150), ("all-gather", 75), ("reduce-scatter", 300), ("all-to-all", 75), ("collective-permute", 100)],
)
def test_bytes_sent_by_each_of_four(kind, sent):
    assert sent_bytes(Counter({Collective(kind, 100): 1}), devices=4) == sent


def test_every_branch_is_counted():
    inner = "%{} (x: f32[2]) -> f32[2] {{\n  ROOT %c = f32[2]{{0}} all-reduce(%x)\n}}\n"
    call = "  ROOT %r = f32[2] conditional(%p, %x, %x), branch_computations={%one, %two}"
    text = inner.format("one") + inner.format("two") + f"ENTRY %main (x: f32[2]) -> f32[2] {{\n{call}\n}}"
    assert calls(collectives(text)) == {"all-reduce": 2}


def test_one_device_has_nobody_to_speak_to():
    assert collectives(jax.jit(jnp.sum).lower(jnp.ones(4)).compile()) == {}
