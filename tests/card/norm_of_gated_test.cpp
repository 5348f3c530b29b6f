// The kernels of the norm of what was gated on the fake card against fp64 references.
#include "ops/norm_of_gated/norm_of_gated.h"

#include <ATen/ATen.h>

#include "card/kernel_checks.h"
#include "ops/norm_of_gated_cases.h"

using namespace lorikeet;
using namespace lorikeet::ops;
using namespace lorikeet::test;

namespace {

constexpr double kEps = 1e-5;
constexpr const char* kFile = "norm_of_gated_cuda.cu";

// What every dtype holds exactly.
at::Tensor weight_of(std::int64_t width, std::uint64_t seed) {
  return random({width}, seed).to(at::kBFloat16);
}

struct Form {
  std::int64_t group, groups, rows = 7;
};

void check(const Form& form, at::ScalarType weights) {
  CAPTURE(form.group, form.groups, form.rows, c10::toString(weights));
  const at::Tensor weight = weight_of(form.groups * form.group, 1);
  for (const auto& tolerance : kTolerances) {
    if (tolerance.dtype == at::kDouble) continue;
    const at::Tensor of_rows = weight.to(weights == at::kFloat ? weights : tolerance.dtype).to(kCard);
    card::reset_report();
    const auto found = distance(
        [&](const at::Tensor& rows) {
          return on_card(rows, gated_pair(norm_of_gated_with(of_rows, form.groups, kEps)));
        },
        test::of_rows([&](const at::Tensor& x, const at::Tensor& z) {
          return ops::reference::norm_of_gated(x, z, weight.to(at::kDouble), form.groups, kEps);
        }),
        random({form.rows, 2 * form.groups * form.group}, 2), tolerance.dtype);
    INFO(c10::toString(tolerance.dtype) << ": " << tolerance.why);
    CHECK(found.forward < tolerance.forward);
    CHECK(found.backward < tolerance.backward);
    CHECK(card::report().kernels[kFile] == 3);
    CHECK(card::report().hazards.empty());
  }
}

std::int64_t launches(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, std::int64_t groups,
                      const at::Tensor& dy, const at::Tensor& dz) {
  card::reset_report();
  const at::Tensor y = norm_of_gated(x, z, weight, groups, kEps);
  norm_of_gated_backward_(dy, x, z, weight, groups, kEps, dz);
  CHECK(card::report().hazards.empty());
  const std::int64_t count = card::report().kernels[kFile];
  if (x.scalar_type() != at::kDouble) {
    const double tolerance = x.scalar_type() == at::kFloat ? 4e-6 : 8e-3;
    const at::Tensor expected = ops::reference::norm_of_gated(x.cpu(), z.cpu(), weight.cpu(), groups, kEps);
    CHECK(relative_distance(y.cpu(), expected) < tolerance);
  }
  return count;
}

// A matrix that begins one element behind the beginning of its memory.
at::Tensor shifted(const at::Tensor& dense) {
  const at::Tensor memory = at::empty({dense.numel() + 1}, dense.options());
  return memory.narrow(0, 1, dense.numel()).view(dense.sizes()).copy_(dense);
}

}  // namespace

TEST_CASE("the norm of what was gated on a card agrees with its reference, with gates in wider rows") {
  // One lane of a warp, several groups to a warp's block of which the last isn't full, accesses of two kinds
  // in a warp, several warps of which the last isn't full.
  for (const Form& form : {Form{8, 1, 3}, Form{8, 3}, Form{264, 3}, Form{512, 8, 3}, Form{520, 2},
                           Form{1000, 1}, Form{4096, 1, 2}}) {
    for (const auto weights : {at::kBFloat16, at::kFloat}) check(form, weights);
  }
}

TEST_CASE("groups that a block doesn't hold in registers are read again") {
  // It holds 8,192 elements in 16 bits, and half as many in fp32.
  for (const Form& form : {Form{8200, 1, 2}, Form{16384, 1, 1}, Form{4104, 2, 2}})
    check(form, form.groups == 1 ? at::kFloat : at::kBFloat16);
}

TEST_CASE("a group's norm on a card doesn't depend on the rows and groups beside it") {
  const std::int64_t group = 24, groups = 3, rows = 21;
  const auto made = [&](std::uint64_t seed) {
    return random({rows, groups * group}, seed).to(at::kBFloat16).to(kCard);
  };
  const at::Tensor x = made(3), z = made(4), dy = made(5), weight = weight_of(groups * group, 6).to(kCard);
  const at::Tensor dx = dy.clone(), dz = at::empty_like(z), y = norm_of_gated(x, z, weight, groups, kEps);
  norm_of_gated_backward_(dx, x, z, weight, groups, kEps, dz);
  for (const std::int64_t row : {0, 8, 20}) {
    const auto part = [&](const at::Tensor& of) { return of.narrow(0, row, 1).narrow(1, group, group); };
    const at::Tensor one_dx = part(dy).clone(), one_dz = at::empty_like(one_dx), one_x = part(x).clone();
    const at::Tensor w = weight.narrow(0, group, group);
    CHECK(at::equal(norm_of_gated(one_x, part(z), w, 1, kEps).cpu(), part(y).cpu()));
    norm_of_gated_backward_(one_dx, one_x, part(z), w, 1, kEps, one_dz);
    CHECK(at::equal(one_dx.cpu(), part(dx).cpu()));
    CHECK(at::equal(one_dz.cpu(), part(dz).cpu()));
  }
}

TEST_CASE("norms of what was gated on a card that its kernels don't take go through the reference") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto made = [&](std::uint64_t seed) { return random({7, 64}, seed).to(dtype).to(kCard); };
    const at::Tensor x = made(7), z = made(8), dz = at::empty_like(z), weight = weight_of(64, 9).to(kCard);
    const at::Tensor odd_rows = at::empty({7, 65}, z.options()).narrow(1, 0, 64).copy_(z);
    const at::Tensor columns = z.t().contiguous().t();
    const auto count = [&](const at::Tensor& gates, const at::Tensor& w, std::int64_t groups,
                           const at::Tensor& of_gates) {
      return launches(x, gates, w, groups, made(10), of_gates);
    };
    CHECK(count(z, weight, 2, dz) == 2);  // widened where x isn't bf16
    const at::Tensor wide = weight.to(at::kFloat);
    CHECK(count(z, wide, 2, dz) == 2);
    CHECK(count(z, weight.to(at::kHalf), 2, dz) == 2);
    CHECK(count(z, shifted(wide), 2, dz) == 0);
    CHECK(count(z, at::stack({wide, wide}, 1).select(1, 0), 2, dz) == 0);
    CHECK(count(z, wide, 32, dz) == 0);  // groups of two elements
    for (const at::Tensor& other : {shifted(z), odd_rows, columns}) {
      CHECK(count(other, wide, 2, dz) == 0);
      CHECK(count(z, wide, 2, other) == 1);  // forward
    }
    CHECK(launches(shifted(x), z, wide, 2, made(10), dz) == 0);
    CHECK(launches(x, z, wide, 2, shifted(made(10)), dz) == 1);
    const auto none = [](const at::Tensor& of) { return of.narrow(0, 0, 0); };
    CHECK(launches(none(x), none(z), wide, 2, none(made(10)), none(dz)) == 0);
    const at::Tensor in = x.to(at::kDouble);
    CHECK(launches(in, in, wide, 2, in.clone(), at::empty_like(in)) == 0);
  }
}

TEST_CASE("the gradient of the gate of a normed product may be written over the gate on a card") {
  for (const std::int64_t width : {64, 8400}) {  // the second is wider than a block of backward's
    const at::Tensor x = random({3, width}, 11).to(at::kBFloat16).to(kCard), z = x.flip(0), dy = x.flip(1);
    const at::Tensor weight = weight_of(width, 12).to(kCard);
    const at::Tensor dx = dy.clone(), dz = at::empty_like(z), over_dx = dy.clone(), over = z.clone();
    norm_of_gated_backward_(dx, x, z, weight, 1, kEps, dz);
    norm_of_gated_backward_(over_dx, x, over, weight, 1, kEps, over);
    CHECK(at::equal(over.cpu(), dz.cpu()));
    CHECK(at::equal(over_dx.cpu(), dx.cpu()));
  }
}
