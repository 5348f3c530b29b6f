// How much memory a layer moves, forward and backward, beside what its operators have to move.
#include "card/traffic.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <string>

#include "card/micro_step_report.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

const at::Device kCard("cuda:1");

struct Counted {
  Counted() { card::count_traffic(true); }
  ~Counted() { card::count_traffic(false); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

card::Traffic traffic_of(const std::string& name) { return card::report().traffic[name]; }

using ByLaunch = std::map<std::string, card::Traffic>;

ByLaunch minus(ByLaunch more, const ByLaunch& less) {
  for (const auto& [name, traffic] : less) {
    more[name].read -= traffic.read;
    more[name].written -= traffic.written;
  }
  return more;
}

ByLaunch traffic_of_a_layer(card::MicroStepOf model, int tokens) {
  model.tokens = tokens;
  const auto run = [&](int layers) {
    model.layers = layers;
    return card::micro_step_report(model).traffic;
  };
  return minus(run(3), run(2));
}

// Numbers of a token that forward and backward read or write when every operator (a norm with the residual's
// sum, a group of projections with its adapters, rotary, attention, the gated product) reads each input once
// and writes each result once, with what nn/decoder_layer.h keeps; what is computed again comes with the
// gradient that reads the same. It may be less: the gated product isn't written and read again where its
// gradient's kernel sums up that of down's A.
std::int64_t needed_numbers(const card::MicroStepOf& model) {
  const std::int64_t h = model.hidden, f = model.intermediate, r = model.rank;
  const std::int64_t k = model.key_value_heads * model.head_dim;
  const std::int64_t qkv = h + 2 * k, rotated = h + k;
  const std::int64_t forward = 2 * 4 * h                   // norms: stream and addend in, sum and normed out
                               + (h + qkv + 3 * r)         // q, k and v
                               + 2 * rotated               // in place
                               + (qkv + h)                 // attention
                               + (h + h + r)               // its output's projection
                               + (h + 2 * f + 2 * r)       // gate and up
                               + (2 * f + f)               // the gated product
                               + (f + h + r);              // down
  const std::int64_t backward = (h + r + f + f)            // down: dy, x a^T and x in, dx out
                                + (2 * f + f + 2 * f + f)  // the gated product's, and it again
                                + (2 * f + 2 * r + h + h)  // gate and up
                                + 5 * h                    // norm: dx, the stream's gradient, input; the
                                                           // sum, forward's result again
                                + (h + r + h + h)          // attention's output
                                + (h + qkv + h + qkv)      // attention
                                + 2 * rotated              // in place
                                + (qkv + 3 * r + h + h)    // q, k and v
                                + 5 * h;                   // norm
  return forward + backward;
}

// That a layer of the model moves fewer bytes a token than `most` times those that are needed.
void check_moved_bytes(const card::MicroStepOf& model, double most) {
  if (!card::traffic_is_countable()) {
    WARN("skipped: signals don't tell reading from writing on this machine");
    return;
  }
  const Counted counted;
  // The difference leaves out weights, their gradients, and the ends of tensors that share pages.
  constexpr int kFew = 1024, kMany = 1536;
  const ByLaunch of_tokens = minus(traffic_of_a_layer(model, kMany), traffic_of_a_layer(model, kFew));
  const double needed = 2.0 * (kMany - kFew) * static_cast<double>(needed_numbers(model));
  double moved = 0;
  std::string list;
  for (const auto& [name, traffic] : of_tokens) {
    const double read = static_cast<double>(traffic.read) / needed;
    const double written = static_cast<double>(traffic.written) / needed;
    moved += read + written;
    list += "\n  " + name + ": read " + std::to_string(read) + ", written " + std::to_string(written);
  }
  INFO("a layer moves " << moved << " of what is needed; of it" << list);
  CHECK(moved < most);
  CHECK(moved > 1);
}

}  // namespace

TEST_CASE("a launch's traffic is what it reads and writes") {
  if (!card::traffic_is_countable()) {
    WARN("skipped: signals don't tell reading from writing on this machine");
    return;
  }
  constexpr std::int64_t kNumbers = 1 << 18, kBytes = 4 * kNumbers, kSlack = 2 * 4096;
  const auto x = at::ones({kNumbers}).to(kCard), y = at::ones({kNumbers}).to(kCard);
  const Counted counted;
  card::reset_report();
  const auto near = [&](std::int64_t bytes, std::int64_t expected) {
    return bytes >= expected && bytes <= expected + kSlack;
  };
  auto out = at::add(x, y);
  CHECK(near(traffic_of("aten::add.out").read, 2 * kBytes));
  CHECK(near(traffic_of("aten::add.out").written, kBytes));
  out.mul_(2);
  CHECK(near(traffic_of("aten::mul.out").read, kBytes));
  CHECK(near(traffic_of("aten::mul.out").written, kBytes));
  out.zero_();
  CHECK(traffic_of("aten::zero_").read == 0);
  CHECK(near(traffic_of("aten::zero_").written, kBytes));
  out.slice(0, 0, kNumbers / 4).zero_();
  CHECK(near(traffic_of("aten::zero_").written, kBytes + kBytes / 4));
  CHECK(card::report().hazards.empty());
}

TEST_CASE("bytes that a layer with adapters on all its projections moves, forward and backward") {
  // The proportions of Llama 3's 8B, a sixteenth as wide, so that adapters are a larger part of it. The most
  // above 1 is theirs: their products read inputs and gradients again, and large products of gradients but
  // down's read what they wrote.
  check_moved_bytes(
      {.hidden = 256, .heads = 4, .key_value_heads = 1, .head_dim = 64, .intermediate = 896, .rank = 8},
      1.29);
}

// Takes 13 minutes and 5 GB: for benchmarks/results/launches.md.
TEST_CASE("a layer of Llama 3's 8B: bytes that it moves, forward and backward", "[.][8b]") {
  check_moved_bytes(
      {.hidden = 4096, .heads = 32, .key_value_heads = 8, .head_dim = 128, .intermediate = 14336, .rank = 16},
      1.25);
}
