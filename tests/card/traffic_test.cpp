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

struct Layer {
  std::int64_t hidden, heads, key_value_heads, head_dim, intermediate, rank;
};

ByLaunch traffic_of_a_layer(const Layer& layer, int tokens) {
  const auto run = [&](int layers) {
    return card::micro_step_report({.layers = layers,
                                    .hidden = layer.hidden,
                                    .heads = layer.heads,
                                    .key_value_heads = layer.key_value_heads,
                                    .head_dim = layer.head_dim,
                                    .intermediate = layer.intermediate,
                                    .tokens = tokens,
                                    .rank = static_cast<int>(layer.rank)})
        .traffic;
  };
  return minus(run(3), run(2));
}

// Numbers of a token that forward and backward read or write when every operator (a norm with the residual's
// sum, a group of projections with its adapters, rotary, attention, the gated product) reads each input once
// and writes each result once, with what nn/decoder_layer.h keeps; what is computed again comes with the
// gradient that reads the same.
std::int64_t needed_numbers(const Layer& layer) {
  const std::int64_t h = layer.hidden, f = layer.intermediate, r = layer.rank;
  const std::int64_t k = layer.key_value_heads * layer.head_dim;
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

struct Moved {
  double of_needed = 0;
  std::string list;  // by launch
};

// Of a token. The difference leaves out weights, their gradients, and the ends of tensors that share pages.
Moved moved_bytes(const Layer& layer, int few_tokens, int many_tokens) {
  const Counted counted;
  const ByLaunch of_tokens =
      minus(traffic_of_a_layer(layer, many_tokens), traffic_of_a_layer(layer, few_tokens));
  const double needed = 2.0 * (many_tokens - few_tokens) * static_cast<double>(needed_numbers(layer));
  Moved moved;
  for (const auto& [name, traffic] : of_tokens) {
    const double read = static_cast<double>(traffic.read) / needed;
    const double written = static_cast<double>(traffic.written) / needed;
    moved.of_needed += read + written;
    moved.list += "\n  " + name + ": read " + std::to_string(read) + ", written " + std::to_string(written);
  }
  return moved;
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
  if (!card::traffic_is_countable()) {
    WARN("skipped: signals don't tell reading from writing on this machine");
    return;
  }
  // The proportions of Llama 3's 8B, a sixteenth as wide, so that adapters are a larger part of it.
  const Layer small = {
      .hidden = 256, .heads = 4, .key_value_heads = 1, .head_dim = 64, .intermediate = 896, .rank = 8};
  const Moved moved = moved_bytes(small, 1024, 1536);
  INFO("a layer moves " << moved.of_needed << " of what is needed; of it" << moved.list);
  // The most is adapters': their products read inputs and gradients again, and large products of gradients
  // but down's read what they wrote.
  CHECK(moved.of_needed < 1.35);
  CHECK(moved.of_needed > 1);
}

// Takes 17 minutes and 5 GB: for benchmarks/results/launches.md, which names what is above 1.
TEST_CASE("a layer of Llama 3's 8B: bytes that it moves, forward and backward", "[.][8b]") {
  const Layer layer = {
      .hidden = 4096, .heads = 32, .key_value_heads = 8, .head_dim = 128, .intermediate = 14336, .rank = 16};
  const Moved moved = moved_bytes(layer, 1024, 1536);
  WARN("a layer moves " << moved.of_needed << " of what is needed; of it" << moved.list);
  CHECK(moved.of_needed < 1.30);
  CHECK(moved.of_needed > 1);
}
