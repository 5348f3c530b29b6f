#include "ops/attention/blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "ops/attention/heads.h"
#include "ops/dry_run.h"
#include "ops/reference_ops.h"
#include "ops/wide.h"

// Within a block, heads are batched by their key head: [Hkv, rows, D] with the rows of one query head after
// those of another, so that a group's heads share keys and values without copies of them, and its gradients
// sum in one product.
namespace lorikeet::ops::blocks {
namespace {

// Elements of keys or values that are widened at a time.
constexpr std::int64_t kTileElements = std::int64_t{1} << 20;

// One sequence: q [n, H, D], k and v [L, Hkv, D]. Its queries are the last positions of its keys.
struct Rows : Heads {
  std::int64_t kv_heads() const { return k.size(1); }
  std::int64_t first_position() const { return k.size(0) - q.size(0); }
};

// Queries [begin, end) of a sequence, and the keys [key_begin, key_end) that any of them sees.
struct Block {
  std::int64_t begin, end, key_begin, key_end;
  std::int64_t queries() const { return end - begin; }
  std::int64_t keys() const { return key_end - key_begin; }
};

template <typename F>
void for_each_block(const Rows& rows, const AttentionOptions& options, std::int64_t block_scores,
                    const F& f) {
  const std::int64_t queries = rows.q.size(0), keys = rows.k.size(0), first = rows.first_position();
  // A block of no more queries than the window sees at most two windows of keys.
  const bool band = options.causal && options.window > 0;
  const std::int64_t span = band ? std::min(keys, 2 * options.window) : keys;
  std::int64_t step =
      std::max<std::int64_t>(block_scores / (rows.q.size(1) * std::max<std::int64_t>(span, 1)), 1);
  if (band) step = std::min(step, options.window);
  for (std::int64_t begin = 0; begin < queries; begin += step) {
    const std::int64_t end = std::min(begin + step, queries);
    Block block{begin, end, 0, keys};
    if (options.causal) block.key_end = first + end;
    if (options.window > 0) block.key_begin = std::max<std::int64_t>(first + begin - options.window + 1, 0);
    f(block);
  }
}

// The dtype of products' operands. A GPU multiplies 16-bit numbers many times as fast as fp32 ones.
at::ScalarType operand_type(const at::Tensor& q) {
  const bool as_they_are = kernels_of(q) == at::kCUDA && at::isReducedFloatingType(q.scalar_type());
  return as_they_are && !reference_ops() ? q.scalar_type() : wide_type(q);
}

// a b, batch by batch, in the wide type.
at::Tensor wide_bmm(const at::Tensor& a, const at::Tensor& b) {
  if (!at::isReducedFloatingType(a.scalar_type())) return at::bmm(a, b);
  if (a.is_meta()) return at::empty({a.size(0), a.size(1), b.size(2)}, a.options().dtype(at::kFloat));
  return at::bmm(a, b, at::kFloat);
}

// sum += a b.
void add_product(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.baddbmm_(a, b);
  } else {
    sum.add_(wide_bmm(a, b));
  }
}

// Calls f(begin, tile [Hkv, keys, D] in `operand`) for pieces of the rows [begin, end) of `rows` [L, Hkv, D].
// What has that dtype already is one piece, and not copied.
template <typename F>
void for_each_tile(const at::Tensor& rows, const Block& block, at::ScalarType operand, const F& f) {
  const std::int64_t step = rows.scalar_type() == operand
                                ? block.keys()
                                : std::max<std::int64_t>(kTileElements / (rows.size(1) * rows.size(2)), 1);
  for (std::int64_t begin = block.key_begin; begin < block.key_end; begin += step) {
    const std::int64_t end = std::min(begin + step, block.key_end);
    f(begin - block.key_begin, rows.slice(0, begin, end).to(operand).transpose(0, 1));
  }
}

// [Hkv, group * n, D] in `dtype`, of a block's rows of `rows` [n, H, D].
at::Tensor batched(const at::Tensor& rows, const Block& block, std::int64_t kv_heads, at::ScalarType dtype) {
  const at::Tensor part = rows.slice(0, block.begin, block.end).to(dtype);
  return part.unflatten(1, {kv_heads, -1}).permute({1, 2, 0, 3}).flatten(1, 2);
}

// The inverse: writes [Hkv, group * n, D] to a block's rows of `to` [n, H, D], in its dtype.
void store(const at::Tensor& batch, const Block& block, const at::Tensor& to) {
  to.slice(0, block.begin, block.end)
      .unflatten(1, {batch.size(0), -1})
      .copy_(batch.unflatten(1, {-1, block.queries()}).permute({2, 0, 1, 3}));
}

// product [Hkv, rows, keys], wide, of x [Hkv, rows, D] with the block's keys (or values).
at::Tensor with_rows(const at::Tensor& x, const at::Tensor& rows, const Block& block) {
  at::Tensor product;
  for_each_tile(rows, block, x.scalar_type(), [&](std::int64_t at, const at::Tensor& tile) {
    const at::Tensor part = wide_bmm(x, tile.transpose(1, 2));
    if (tile.size(1) == block.keys()) {
      product = part;
      return;
    }
    if (!product.defined()) product = at::empty({x.size(0), x.size(1), block.keys()}, part.options());
    product.slice(2, at, at + tile.size(1)).copy_(part);
  });
  return product;
}

// product [Hkv, rows, D], wide, of x [Hkv, rows, keys] with the block's values (or keys).
at::Tensor over_rows(const at::Tensor& x, const at::Tensor& rows, const Block& block) {
  at::Tensor product;
  for_each_tile(rows, block, x.scalar_type(), [&](std::int64_t at, const at::Tensor& tile) {
    const at::Tensor part = x.slice(2, at, at + tile.size(1));
    if (product.defined()) {
      add_product(product, part, tile);
    } else {
      product = wide_bmm(part, tile);
    }
  });
  return product;
}

// Sets the scores of keys that a query may not see to minus infinity.
void hide(const at::Tensor& scores, const Rows& rows, const Block& block, const AttentionOptions& options) {
  if (block.queries() == 1 || (!options.causal && options.window == 0)) return;  // the block has no such key
  const auto positions = at::TensorOptions(at::kLong).device(scores.device());
  const std::int64_t first = rows.first_position();
  const at::Tensor i = at::arange(first + block.begin, first + block.end, positions).unsqueeze(1);
  const at::Tensor j = at::arange(block.key_begin, block.key_end, positions).unsqueeze(0);
  at::Tensor hidden = options.causal ? j > i : at::Tensor();
  if (options.window > 0) {
    const at::Tensor before = i - j >= options.window;
    hidden = hidden.defined() ? hidden.bitwise_or_(before) : before;
  }
  scores.unflatten(1, {-1, block.queries()}).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

// tanh(score / cap), or the scores themselves without a cap; nothing is hidden yet.
at::Tensor raw_scores(const at::Tensor& q, const Rows& rows, const Block& block,
                      const AttentionOptions& options) {
  at::Tensor scores = with_rows(q, rows.k, block);
  if (options.soft_cap > 0) return scores.mul_(options.scale / options.soft_cap).tanh_();
  return scores.mul_(options.scale);
}

void forward(const Rows& rows, const AttentionOptions& options, const at::Tensor& out, const at::Tensor& lse,
             std::int64_t block_scores) {
  const at::ScalarType operand = operand_type(rows.q);
  for_each_block(rows, options, block_scores, [&](const Block& block) {
    const at::Tensor q = batched(rows.q, block, rows.kv_heads(), operand);
    at::Tensor p = raw_scores(q, rows, block, options);
    if (options.soft_cap > 0) p.mul_(options.soft_cap);
    hide(p, rows, block, options);
    const at::Tensor most = p.amax(-1, /*keepdim=*/true);
    p.sub_(most).exp_();
    const at::Tensor sum = p.sum(-1, /*keepdim=*/true);
    store(over_rows(p.to(operand), rows.v, block).div_(sum), block, out);
    if (lse.defined())
      lse.slice(1, block.begin, block.end).copy_(most.add(sum.log()).view({rows.q.size(1), block.queries()}));
  });
}

// What backward reads and writes of one sequence.
struct Gradients {
  at::Tensor dout, out, lse;  // [n, H, D] twice, [H, n]
  Rows qkv;                   // of q, k and v
};

void backward(const Rows& rows, const Gradients& gradients, const AttentionOptions& options,
              std::int64_t block_scores) {
  const at::ScalarType wide = wide_type(rows.q), operand = operand_type(rows.q);
  const auto sums = [&] {
    return at::zeros({rows.kv_heads(), rows.k.size(0), rows.k.size(2)}, rows.q.options().dtype(wide));
  };
  at::Tensor dk = sums(), dv = sums();
  for_each_block(rows, options, block_scores, [&](const Block& block) {
    const at::Tensor q = batched(rows.q, block, rows.kv_heads(), operand);
    const at::Tensor dout = batched(gradients.dout, block, rows.kv_heads(), operand);
    const at::Tensor delta =
        batched(gradients.out, block, rows.kv_heads(), wide).mul(dout).sum(-1, /*keepdim=*/true);
    const at::Tensor lse =
        gradients.lse.slice(1, block.begin, block.end).reshape({rows.kv_heads(), q.size(1), 1});

    at::Tensor p = raw_scores(q, rows, block, options);
    at::Tensor tanh;  // of all scores: those that are hidden would be no numbers
    if (options.soft_cap > 0) {
      tanh = p;
      p = tanh.mul(options.soft_cap);
    }
    hide(p, rows, block, options);
    p.sub_(lse).exp_();
    add_product(dv.slice(1, block.key_begin, block.key_end), p.to(operand).transpose(1, 2), dout);

    at::Tensor dscores = with_rows(dout, rows.v, block).sub_(delta).mul_(p);
    if (options.soft_cap > 0) dscores.mul_(tanh.square_().neg_().add_(1));
    dscores = dscores.mul_(options.scale).to(operand);
    add_product(dk.slice(1, block.key_begin, block.key_end), dscores.transpose(1, 2), q);
    store(over_rows(dscores, rows.k, block), block, gradients.qkv.q);
  });
  gradients.qkv.k.copy_(dk.transpose(0, 1));
  gradients.qkv.v.copy_(dv.transpose(0, 1));
}

Rows rows_of(const Heads& heads, std::int64_t begin, std::int64_t end) {
  return {{heads.q.slice(0, begin, end), heads.k.slice(0, begin, end), heads.v.slice(0, begin, end)}};
}

template <typename F>
void for_each_sequence(const std::vector<std::int32_t>& ends, const F& f) {
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
    if (ends[s] < ends[s + 1]) f(s, ends[s], ends[s + 1]);
  }
}

}  // namespace

void attention_forward(const at::Tensor& q, const std::vector<at::Tensor>& k,
                       const std::vector<at::Tensor>& v, const std::vector<std::int32_t>& cu_q,
                       const AttentionOptions& options, at::Tensor& out, at::Tensor& lse,
                       std::int64_t block_scores) {
  const at::Tensor rows = out.view(q.sizes());
  for_each_sequence(cu_q, [&](std::size_t s, std::int64_t begin, std::int64_t end) {
    forward({{q.slice(0, begin, end), k[s], v[s]}}, options, rows.slice(0, begin, end),
            lse.defined() ? lse.slice(1, begin, end) : at::Tensor(), block_scores);
  });
}

void attention_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const at::Tensor& lse, const HeadLayout& layout, const Sequences& sequences,
                        const AttentionOptions& options, at::Tensor& dqkv, std::int64_t block_scores) {
  const Heads heads = split_heads(qkv, layout), dheads = split_heads(dqkv, layout);
  const auto by_head = [&](const at::Tensor& rows, std::int64_t begin, std::int64_t end) {
    return rows.slice(0, begin, end).unflatten(1, {layout.heads, layout.head_dim});
  };
  for_each_sequence(sequences.cu_seqlens, [&](std::size_t, std::int64_t begin, std::int64_t end) {
    backward(rows_of(heads, begin, end),
             {.dout = by_head(dout, begin, end),
              .out = by_head(out, begin, end),
              .lse = lse.slice(1, begin, end),
              .qkv = rows_of(dheads, begin, end)},
             options, block_scores);
  });
}

}  // namespace lorikeet::ops::blocks
