// The kernels of latent attention's heads on the fake card against fp64 references.
#include "ops/latent_heads/latent_heads.h"

#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/latent_pair.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr const char* kKernels = "latent_heads_cuda.cu";

// Rows and angles of so many tokens on the card.
struct Case {
  LatentLayout layout;
  at::Tensor rows, cos, sin;

  Case(const LatentLayout& of, std::int64_t tokens, at::ScalarType dtype, std::uint64_t seed) : layout(of) {
    const auto angles = latent_angles(tokens, layout);
    rows = random({tokens, parts_width(layout)}, seed).to(dtype).to(kCard);
    cos = angles.first.to(at::kFloat).to(kCard);
    sin = angles.second.to(at::kFloat).to(kCard);
  }
};

// Launches of both directions, which mustn't have a hazard. Compares their numbers with a CPU's.
std::int64_t launches(const Case& c, const LatentParts& parts, const LatentParts& gradients) {
  card::reset_report();
  const at::Tensor y = latent_heads(parts, c.cos, c.sin, c.layout);
  latent_heads_backward(HeadGradients::of(y, c.layout.padded()), c.cos, c.sin, c.layout, gradients);
  CHECK(card::report().hazards.empty());
  const std::int64_t launched = card::report().kernels[kKernels];
  const auto wide = [](const at::Tensor& t) { return t.cpu().to(at::kDouble); };
  const at::Tensor expected = ops::reference::latent_heads(
      {wide(parts.q), wide(parts.kv), wide(parts.shared_key)}, c.cos.cpu(), c.sin.cpu(), c.layout);
  CHECK(relative_distance(y.cpu(), expected) <= (c.rows.scalar_type() == at::kBFloat16 ? 4e-3 : 1e-6));
  return launched;
}

}  // namespace

TEST_CASE("latent heads on a card agree with their reference, parts in wider rows") {
  std::vector<LatentLayout> layouts(std::begin(kLatentLayouts), std::end(kLatentLayouts));
  layouts.push_back({40, 128, 64, 128, true});  // more than one block of items
  for (const LatentLayout& layout : layouts) {
    CAPTURE(layout.heads, layout.plain_dim, layout.rotary_dim, layout.value_dim, layout.interleaved);
    const auto [cos, sin] = latent_angles(7, layout);
    check_kernel_dtypes(kKernels, latent_pair(layout, cos.to(kCard), sin.to(kCard)),
                        latent_reference(layout, cos, sin), random({7, parts_width(layout)}, 1));
  }
}

TEST_CASE("latent heads on a card take rows at any place, element by element where they must") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Case c(kLatentLayouts[0], 5, dtype, 2);
    const std::int64_t width = c.rows.size(1);
    const auto elsewhere = [&](std::int64_t before, std::int64_t behind) {
      return at::empty({5, before + width + behind}, c.rows.options()).narrow(1, before, width).copy_(c.rows);
    };
    for (const auto& [before, behind] : {std::pair{0, 0}, {16, 16}, {1, 0}, {0, 1}, {3, 5}}) {
      const LatentParts from = latent_parts(elsewhere(before, behind), c.layout);
      const LatentParts to = latent_parts(elsewhere(behind, before), c.layout);
      CHECK(launches(c, from, to) == 2);
      const at::Tensor same = at::empty_like(c.rows);
      CHECK(launches(c, latent_parts(c.rows, c.layout), latent_parts(same, c.layout)) == 2);
      CHECK(at::equal(to.q.cpu(), latent_parts(same, c.layout).q.cpu()));
      CHECK(at::equal(to.kv.cpu(), latent_parts(same, c.layout).kv.cpu()));
      CHECK(at::equal(to.shared_key.cpu(), latent_parts(same, c.layout).shared_key.cpu()));
    }
  }
  const Case wide(kLatentLayouts[0], 3, at::kDouble, 3), none(kLatentLayouts[0], 0, at::kFloat, 4);
  for (const Case* c : {&wide, &none}) {
    const at::Tensor gradients = at::empty_like(c->rows);
    CHECK(launches(*c, latent_parts(c->rows, c->layout), latent_parts(gradients, c->layout)) == 0);
  }
}

TEST_CASE("latent heads cover more rows than a launch has blocks") {
  const Case c({1, 8, 16, 8, true}, 65540, at::kHalf, 5);
  const auto of = [&](const at::Tensor& rows, std::int64_t begin) {
    return latent_heads(latent_parts(rows.slice(0, begin), c.layout), c.cos.slice(0, begin),
                        c.sin.slice(0, begin), c.layout);
  };
  const at::Tensor whole = of(c.rows, 0), last = of(c.rows, 65530);
  CHECK(at::equal(whole.slice(0, 65530).cpu(), last.cpu()));
  const auto back = [&](std::int64_t begin) {
    at::Tensor out = at::empty_like(c.rows).slice(0, begin);
    latent_heads_backward(HeadGradients::of(whole.slice(0, begin), c.layout.padded()), c.cos.slice(0, begin),
                          c.sin.slice(0, begin), c.layout, latent_parts(out, c.layout));
    return out.cpu();
  };
  CHECK(at::equal(back(0).slice(0, 65530), back(65530)));
}
