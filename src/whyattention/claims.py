"""The ledger: what the article claims, what the primary source says, and what this book measured.

A notebook puts a measured figure into its stored output with `measured`; everything that quotes the figure reads it
from there, so that no number of the ledger is ever typed.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from IPython.display import Markdown, display

Verdict = Literal["holds", "holds under conditions", "wrong source", "wrong number", "not measurable here"]
NOTHING = "nothing; it would take the machines that it names"  # measured here, for a claim of the last kind


@dataclass(frozen=True)
class Claim:
    """One claim of the article, in paraphrase.

    `section` is how the title of the article's section begins, and `quote` its own words; " …… " stands between words
    of different places. `figures` name what the chapter measured (see `measured`); `source` is a key of references.bib
    and `where` the place in it; `says` is what is found there.
    """

    number: int
    section: str
    article: str
    source: str
    where: str
    says: str
    chapter: int
    figures: tuple[str, ...]
    verdict: Verdict
    quote: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure as a notebook stores it: its value, the text that says so, and the place of its cell, from 0."""

    value: float
    text: str
    cell: int


# In the order of the article. The numbers are those of the chapters.
LEDGER: tuple[Claim, ...] = (
    Claim(
        number=20,
        section="导言",
        quote="读完第 100 个字时，第 1 个字已经被擦掉了",
        article="By the time character 100 is read, character 1 has been erased.",
        source="collins2017",
        where="Collins et al. 2017, abstract",
        says="A recurrent network can store about one real number of its input history per hidden unit.",
        chapter=1,
        figures=("recurrence/first_character_lasts",),
        verdict="holds under conditions",
    ),
    Claim(
        number=19,
        section="顺序处理",
        quote="它维护一个「隐状态」向量 h_t，每读一个新词 x_t，就更新一次",
        article="A recurrent network updates one hidden state per word, h_t = tanh(W_h h_{t-1} + W_x x_t).",
        source="elman1990",
        where="Elman 1990, figure 2",
        says="Hidden units are fed by the input and by a copy of their own last state; there they are logistic units.",
        chapter=1,
        figures=("recurrence/largest_difference", "recurrence/gain_over_trigram"),
        verdict="holds",
    ),
    Claim(
        number=2,
        section="顺序处理",
        quote="每一步都在等前一步算完 …… 训练慢是结构性问题而非工程问题",
        article="The slowness of recurrence is structural, not a matter of engineering.",
        source="vaswani2017",
        where="Vaswani et al. 2017, section 1",
        says="Recurrence “precludes parallelization within training examples”; nothing is said of batches or kernels.",
        chapter=2,
        figures=("serial/span_per_step", "serial/chain_over_product", "serial/held_out_factor"),
        verdict="holds under conditions",
    ),
    Claim(
        number=22,
        section="顺序处理",
        quote="要算 h_2，必须先有 h_1 …… 这就是串行依赖",
        article="To compute h_2 there must first be h_1: that is serial dependence, and what recurrence is.",
        source="lim2024deer",
        where="Lim et al. 2024, abstract",
        says="Even nonlinear sequential models can be evaluated in parallel over time, “without compromising output "
        "accuracy”, by iterations that are each a linear recurrence; and for linear ones a parallel scan is exact "
        "(Martin & Cundy 2018).",
        chapter=10,
        figures=("parallel/shorter", "parallel/dearer", "parallel/newton_rounds", "parallel/newton_growing"),
        verdict="holds under conditions",
    ),
    Claim(
        number=26,
        section="顺序处理",
        quote="要算 h_3，必须先有 h_2 …… 一个长度 T 的序列，必须经过 T 个时间步才能处理完",
        article="To compute h_3 there must first be h_2: a sequence of length T has to go through T steps.",
        source="martin2018",
        where="Martin & Cundy 2018, abstract",
        says="Non-linear dependencies between the elements “prevent parallelizing training over sequence length”; with "
        "linear ones alone a parallel scan does it. Attention is cut over devices by Liu et al. 2023 (abstract).",
        chapter=11,
        figures=(
            "scaling/work_relay",
            "scaling/work_linear",
            "scaling/work_attention",
            "scaling/summary_tanh",
            "scaling/ring_memory",
            "scaling/ring_growth",
        ),
        verdict="holds under conditions",
    ),
    Claim(
        number=1,
        section="顺序处理",
        quote="GPU 利用率常在 5–15% 之间，而同等规模的 Transformer 可以达到 70–95%",
        article="A GPU is used to 5-15% when an LSTM trains, to 70-95% when a Transformer of the same size does.",
        source="chowdhery2023palm",
        where="Chowdhery et al. 2022, appendix B",
        says="Defines utilisation as achieved over peak operations per second; a Transformer reaches 46.2%.",
        chapter=2,
        figures=("serial/lowest_utilisation", "serial/highest_utilisation", "serial/half_parallelism"),
        verdict="wrong number",
    ),
    Claim(
        number=3,
        section="顺序处理",
        quote="训练一个 8 层 LSTM 的机器翻译模型，在 8 张 V100 上需要几天到一周的时间",
        article="An LSTM translator of 8 layers takes days to a week to train on 8 V100.",
        source="nvidia2019gnmt",
        where="NVIDIA, GNMT v2, README, training performance",
        says="8 LSTM layers (4 + 4) on 8 V100, English-German: 118.1 minutes in float32, 42.5 in mixed precision.",
        chapter=2,
        figures=(),
        verdict="not measurable here",
    ),
    Claim(
        number=4,
        section="长距离依赖",
        quote="如果权重矩阵的奇异值小于 1，梯度就会指数衰减",
        article="If the singular values of the weight matrix are below 1, gradients decay exponentially.",
        source="pascanu2013",
        where="Pascanu et al. 2013, section 2.1",
        says="Sufficient, if the largest is below 1/γ, γ the largest slope (1 for tanh). The converse is not claimed.",
        chapter=3,
        figures=("gradients/error_largest", "gradients/error_rms", "gradients/text_reach"),
        verdict="holds",
    ),
    Claim(
        number=5,
        section="长距离依赖",
        quote="Vanilla RNN 实际能稳定的记忆长度只有 10–20 步",
        article="A plain recurrent network has a stable memory of only 10 to 20 steps.",
        source="goodfellow2016",
        where="Goodfellow et al. 2016, section 10.7, on Bengio et al. 1994",
        says="The probability of successful training by SGD reaches 0 at lengths of 10 or 20: learning, not memory.",
        chapter=3,
        figures=(
            "gradients/plain_limit",
            "gradients/scaled_limit",
            "gradients/longer",
            "gradients/latch_gradient",
        ),
        verdict="wrong source",
    ),
    Claim(
        number=6,
        section="长距离依赖",
        quote="让梯度可以几乎不衰减地传递",
        article="The LSTM's cell state is an additive highway on which gradients pass almost without decay.",
        source="jozefowicz2015",
        where="Jozefowicz, Zaremba & Sutskever 2015",
        says="A forget gate that starts at 0.5 brings a vanishing gradient with a factor of 0.5 per step; a bias of 1 "
        "closes the gap to the GRU. The LSTM of 1997 had no forget gate.",
        chapter=4,
        figures=("lstm/highway_bias_0", "lstm/highway_bias_3"),
        verdict="holds under conditions",
    ),
    Claim(
        number=7,
        section="长距离依赖",
        quote="LSTM 的有效记忆长度仍然只有 200–300 个 token 左右",
        article="The effective memory of an LSTM is only 200 to 300 tokens.",
        source="khandelwal2018",
        where="Khandelwal et al. 2018, abstract and section 4",
        says="Trained LSTM language models use about 200 words of context on average. That is use, not capacity; the "
        "article cites Vaswani et al. 2017, who do not measure it.",
        chapter=4,
        figures=("lstm/horizon_recorded", "lstm/trainable_bias_5", "lstm/bits_per_unit"),
        verdict="wrong source",
    ),
    Claim(
        number=24,
        section="长距离依赖",
        quote="RNN 需要走 50 步才能把信息从主语传到谓语，每一步都可能丢失信号",
        article="From a subject to a predicate 50 words later a recurrent network needs 50 steps; each may lose it.",
        source="tang2018",
        where="Tang et al. 2018, abstract",
        says="Self-attention and convolutions “do not outperform RNNs in modeling subject-verb agreement over long "
        "distances”; they are distinctly better at word sense disambiguation.",
        chapter=12,
        figures=("scoreboard/middle_lag", "scoreboard/lag"),
        verdict="holds under conditions",
    ),
    Claim(
        number=8,
        section="信息瓶颈",
        quote="句子长度从 30 个词增加到 60 个词时，翻译质量（BLEU 分数）暴跌",
        article="Sutskever et al. found in 2014 that BLEU collapses when sentences grow from 30 to 60 words.",
        source="sutskever2014",
        where="Sutskever et al. 2014, section 3.7 and figure 3",
        says="“We were surprised to discover that the LSTM did well on long sentences”: no degradation below 35 words, "
        "a minor one on the longest. The fall is in Cho et al. 2014, figure 4, and Bahdanau et al. 2014, figure 2.",
        chapter=5,
        figures=("bottleneck/words_right_short", "bottleneck/words_right_long"),
        verdict="wrong source",
    ),
    Claim(
        number=9,
        section="信息瓶颈",
        quote="长句子的前几个词的信息，在编码过程中会被后面的词「覆盖」或「稀释」",
        article="A fixed vector cannot hold a sentence; its first words are overwritten or diluted by later ones.",
        source="cho2014properties",
        where="Cho et al. 2014, section 6; Bahdanau et al. 2014, section 7",
        says="Cho et al. suspect a “lack of representational power in the decoder”. That the vector is to blame, "
        "Bahdanau et al. “conjectured”.",
        chapter=5,
        figures=(
            "bottleneck/bits_forward",
            "bottleneck/bits_reversed",
            "bottleneck/first_forward",
            "bottleneck/first_reversed",
            "bottleneck/first_of_longest_forward",
            "bottleneck/first_of_longest_reversed",
        ),
        verdict="holds under conditions",
    ),
    Claim(
        number=10,
        section="核心想法",
        quote="一个在当时看来很激进的想法",
        article="That a decoder might look back at every state of the encoder was a radical idea in 2014.",
        source="bahdanau2015",
        where="Bahdanau et al. 2014, section 6.2",
        says="“Radical departure” is said of translation by one neural network, as against networks that lend a score "
        "to a phrase-based system; soft windows over an input were known (Graves 2013).",
        chapter=6,
        figures=("bahdanau/scorer_share", "bahdanau/dearer"),
        verdict="wrong source",
    ),
    Claim(
        number=11,
        section="核心想法",
        quote="让每个词直接「看见」所有其他词",
        article="The core of that idea is that every word sees every other word directly.",
        source="bahdanau2015",
        where="Bahdanau et al. 2014, sections 3.1 and 3.2",
        says="Each target word looks at the source's annotations, and at nothing else. The source is read by a "
        "bidirectional recurrent network; words do not look at words of their own sentence.",
        chapter=6,
        figures=("bahdanau/pairs_with_a_weight",),
        verdict="wrong source",
    ),
    Claim(
        number=13,
        section="核心想法",
        quote="信息传递的距离从 O(N) 步降到了 O(1) 步",
        article="With attention, information between two words travels O(1) steps and no longer O(N).",
        source="vaswani2017",
        where="Vaswani et al. 2017, table 1",
        says="Longest path of one kind of layer: O(1) for self-attention, O(n) for recurrence, O(n/r) for attention "
        "restricted to r places, O(log n) for dilated convolutions.",
        chapter=7,
        figures=("self_attention/recurrent_steps", "self_attention/restricted_steps"),
        verdict="holds",
    ),
    Claim(
        number=12,
        section="核心想法",
        quote="加上了注意力机制的 Seq2Seq 模型，在长句翻译上的性能不再衰减",
        article="With attention, a translator no longer gets worse on long sentences.",
        source="bahdanau2015",
        where="Bahdanau et al. 2014, figure 2 and section 5.1",
        says="True of RNNsearch-50, trained on up to 50 words. RNNsearch-30 falls from 23.4 BLEU at 30 words to 7.6 "
        "at 59 (read from the figure).",
        chapter=6,
        figures=(
            "bahdanau/attention_at_longest_seen",
            "bahdanau/fixed_at_longest_seen",
            "bahdanau/recorded_gap",
            "bahdanau/attention_beyond",
            "bahdanau/attention_trained_short",
            "bahdanau/bleu_trained_short",
            "bahdanau/real_french",
        ),
        verdict="holds under conditions",
    ),
    Claim(
        number=23,
        section="核心想法",
        quote="如果注意力本身就能让任意两个位置直接交互，那 RNN 的循环结构是不是根本不需要",
        article="If attention lets any two positions interact directly, the recurrence may not be needed at all.",
        source="merrill2024",
        where="Merrill et al. 2024, abstract",
        says="Transformers and linear state-space models alike lack, in theory, the power to track state as in the "
        "composition of permutations, which recurrent networks have.",
        chapter=10,
        figures=(
            "parallel/recall_attention",
            "parallel/recall_small",
            "parallel/recall_large",
            "parallel/parity_gru",
            "parallel/parity_signed",
            "parallel/parity_mingru",
            "parallel/parity_attention",
            "parallel/words_gru",
            "parallel/words_matrix",
            "parallel/words_signed",
        ),
        verdict="holds under conditions",
    ),
    Claim(
        number=18,
        section="从补丁到主角",
        quote="去掉 RNN，只用注意力机制",
        article="The answer of 2017 was to take the recurrent network away and to use attention alone.",
        source="vaswani2017",
        where="Vaswani et al. 2017, sections 3.1 and 3.3",
        says="Every layer also has a feed-forward network, and every sublayer a residual connection and a layer norm.",
        chapter=8,
        figures=(
            "transformer/attention_share",
            "transformer/time_per_update",
            "transformer/cache_saves",
            "transformer/exact_gain",
            "transformer/beyond",
            "transformer/error_rate",
            "transformer/pre_norm_lead",
        ),
        verdict="holds under conditions",
    ),
    Claim(
        number=15,
        section="从补丁到主角",
        quote="所有位置同时计算，不再串行等待",
        article="All positions are computed at the same time; nothing waits in a row any more.",
        source="vaswani2017",
        where="Vaswani et al. 2017, sections 3 and 7",
        says="In training. Generating is auto-regressive, each symbol an input for the next; “making generation less "
        "sequential” is a goal.",
        chapter=9,
        figures=("cost/token_growth", "cost/token_growth_lstm"),
        verdict="holds under conditions",
    ),
    Claim(
        number=14,
        section="从补丁到主角",
        quote="任意两个 token 之间的路径长度恒为 1，不再衰减",
        article="The path between any two tokens has length 1, always, and there is no more decay.",
        source="vaswani2017",
        where="Vaswani et al. 2017, section 2",
        says="A constant number of steps, “albeit at the cost of reduced effective resolution due to averaging "
        "attention-weighted positions”.",
        chapter=7,
        figures=("self_attention/gradient_kept", "self_attention/diluted"),
        verdict="holds under conditions",
    ),
    Claim(
        number=21,
        section="从补丁到主角",
        quote="不再把信息压缩成固定向量，而是保留所有位置的表示，按需加权组合",
        article="No fixed vector has to hold the text: all positions are kept, and combined by weights as needed.",
        source="arora2024zoology",
        where="Arora et al. 2024, abstract",
        says="Associative recall accounts for most of the gap between attention and gated convolutions in language "
        "modelling. It takes two layers, or exponentially larger ones (Sanford et al. 2024).",
        chapter=7,
        figures=("self_attention/pairs_two_layers", "self_attention/pairs_one_layer", "self_attention/pairs_lstm"),
        verdict="holds under conditions",
    ),
    Claim(
        number=16,
        section="从补丁到主角",
        quote="序列长度翻倍，计算量翻四倍",
        article="The price of attention is O(N²): double the length, and four times as much has to be computed.",
        source="vaswani2017",
        where="Vaswani et al. 2017, table 1 and section 4",
        says="O(n²d) is the attention of one layer, beside O(nd²) for a recurrent one. The projections and the "
        "feed-forward network of section 3 are of that second kind: 24nd² + 4n²d together.",
        chapter=9,
        figures=("cost/doubling", "cost/crossover", "cost/memory_saving", "cost/blockwise_pace"),
        verdict="holds under conditions",
    ),
    Claim(
        number=17,
        section="从补丁到主角",
        quote="在大多数实际场景中，这个代价换来了训练速度快 5–10 倍",
        article="In most real settings attention trains 5 to 10 times faster.",
        source="uszkoreit2017",
        where="Uszkoreit 2017; Vaswani et al. 2017, table 2 and footnote 5",
        says="The announcement says “up to an order of magnitude”. By the paper's estimates earlier models took 0.4 to "
        "7 times the operations of a Transformer, if every architecture uses a GPU equally well.",
        chapter=9,
        figures=("cost/best_step_ratio", "cost/longest_step_ratio", "cost/needed_width", "cost/needed_width_batched"),
        verdict="wrong source",
    ),
    Claim(
        number=25,
        section="从补丁到主角",
        quote="一次性解决了 RNN 的三个痛点 …… 长程建模能力大幅提升，是划算的交换",
        article="The Transformer solved the three pains of the RNN at one stroke; in most settings it is a bargain.",
        source="chen2018",
        where="Chen et al. 2018, abstract",
        says="With modelling and training techniques of the Transformer, many heads of attention among them, a "
        "recurrent translator “outperforms all of the three fundamental architectures” on both of its benchmarks, the "
        "Transformer among them.",
        chapter=12,
        figures=("scoreboard/chain", "scoreboard/kept", "scoreboard/pairs", "scoreboard/bits"),
        verdict="holds under conditions",
    ),
)


_texts: dict[str, str] = {}  # of the figures measured in this process, by name, for `show`


def measured(name: str, value: float, text: str) -> None:
    """Shows `text`, and keeps `value` under `name` ("chapter/quantity") in the metadata of the cell's output.

    The metadata also follows the layout of MyST-NB's glue, so that a page of the book can quote the text by its name.
    `show` repeats the text beside the claim that rests on it. Raises ValueError if `name` is not of that form.
    """
    if name.count("/") != 1 or not all(name.split("/")):
        raise ValueError(f'a measured figure is named "chapter/quantity", got {name!r}')
    _texts[name] = text
    metadata = {
        "scrapbook": {"name": name, "mime_prefix": ""},
        "whyattention": {"name": name, "value": float(value)},
    }
    display({"text/plain": text}, raw=True, metadata=metadata)


def read_measured(notebook: Path) -> dict[str, Figure]:
    """The figures that the stored outputs of a notebook hold, by name. Raises ValueError if one name stands twice."""
    found: dict[str, Figure] = {}
    for place, cell in enumerate(json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]):
        for output in cell.get("outputs", ()):
            figure = output.get("metadata", {}).get("whyattention")
            if figure is None:
                continue
            if figure["name"] in found:
                raise ValueError(f"{notebook} measures {figure['name']!r} twice")
            text = "".join(output["data"]["text/plain"])  # Jupyter may store it line by line
            found[figure["name"]] = Figure(figure["value"], text, place)
    return found


def show(chapter: int) -> None:
    """The claims of one chapter: the article's in paraphrase, what its source says, what was measured, the verdict."""
    rows = sorted((claim for claim in LEDGER if claim.chapter == chapter), key=lambda claim: claim.number)
    if not rows:
        raise ValueError(f"the ledger has no claim for chapter {chapter}")
    display(Markdown("\n\n".join(_entry(claim) for claim in rows)))


def _entry(claim: Claim) -> str:
    here = "; ".join(_texts.get(name, f"{name} has not been measured yet") for name in claim.figures)
    return (
        f"**Claim {claim.number}.** {claim.article}\n\n"
        f"- *The source:* {claim.says} ({claim.where})\n"
        f"- *Measured here:* {here or NOTHING}\n"
        f"- *Verdict:* **{claim.verdict}**"
    )
