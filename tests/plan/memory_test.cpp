#include "plan/memory.h"

#include <algorithm>

#include "models/toy_family.h"
#include "nn/model_shape.h"
#include "ops/block_pool.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product_cache.h"
#include "support/catch.h"
#include "support/toy_lora.h"

using namespace lorikeet;
using plan::MemoryInput;
using plan::step_memory;

namespace {

constexpr std::int64_t kTokens = 64;

// A Llama of these widths. Heads are of 16 unless they are named.
nn::CausalLMSpec llama(const nn::ModelShape& shape) {
  nn::CausalLMSpec spec{.shape = shape,
                        .rotary = nn::RotarySpec{.head_dim = shape.head_dim, .rotary_dim = shape.head_dim},
                        .final_norm = {"norm", shape.hidden_size, 1e-5},
                        .head = {.hidden_size = shape.hidden_size, .vocab_size = shape.vocab_size}};
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i);
    spec.layers.push_back({.index = i,
                           .attention = {.prefix = prefix + ".self_attn",
                                         .hidden_size = shape.hidden_size,
                                         .layout = {shape.heads, shape.kv_heads, shape.head_dim},
                                         .options = {.scale = 0.25}},
                           .mlp = {.prefix = prefix + ".mlp",
                                   .hidden_size = shape.hidden_size,
                                   .intermediate_size = shape.intermediate_size},
                           .attention_norm = nn::NormSpec{prefix + ".norm_1", shape.hidden_size, 1e-5},
                           .mlp_norm = nn::NormSpec{prefix + ".norm_2", shape.hidden_size, 1e-5}});
  }
  return spec;
}

// Small enough that the allocator keeps no block.
constexpr nn::ModelShape kSmall{.layers = 4,
                                .hidden_size = 64,
                                .heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .intermediate_size = 128,
                                .vocab_size = 1000};
const nn::CausalLMSpec& small() {
  static const nn::CausalLMSpec spec = llama(kSmall);
  return spec;
}

// q, k, v, o, gate, up, down of a layer.
constexpr std::int64_t kAdapterOfLayer =
    4 * ((64 + 64) + 2 * (64 + 32) + (64 + 64) + 2 * (64 + 128) + (128 + 64));

MemoryInput input() {
  MemoryInput in;
  in.model = &small();
  in.lora = {.rank = 4};
  in.frozen_bytes = 5000;
  in.micro = {.tokens = kTokens, .label_tokens = kTokens / 2, .longest = 16};
  return in;
}

// Bytes a token: two norms' inputs, q, k, v, attention's result, gate and up; x A^T of seven modules; fp32:
// four heads' softmax and two norms' statistics.
constexpr std::int64_t kLayer = kTokens * (2 * (2 * 64 + 128 + 64 + 256 + 7 * 4) + 4 * 6);
// Of it what the last layer keeps of every token: attention's part.
constexpr std::int64_t kAttention = kTokens * (2 * (64 + 128 + 64 + 3 * 4) + 4 * 5);
// Of it gate and up, and x A^T of both.
constexpr std::int64_t kGateUpOfToken = 2 * (256 + 2 * 4);

}  // namespace

TEST_CASE("weights, adapter and optimizer follow from their sizes") {
  const auto memory = step_memory(input());
  CHECK(memory.weights == 5000);
  // fp32 values and gradients and a bf16 copy; two fp32 moments and the number of updates.
  CHECK(memory.adapter == 4 * kAdapterOfLayer * (4 + 4 + 2));
  CHECK(memory.optimizer == 4 * kAdapterOfLayer * 8 + 4);
  CHECK(memory.held() == memory.weights + memory.adapter + memory.optimizer);
  CHECK(memory.total() == memory.held() + memory.activations + memory.logits + memory.workspace +
                              memory.graphs + memory.fragmentation + memory.product_caches + memory.runtime);
  std::int64_t sum = 0;
  for (const auto& [part, bytes] : memory.rows()) sum += bytes;
  CHECK(sum == memory.total());
}

TEST_CASE("a layer keeps what its backward needs, and layers add up") {
  MemoryInput in = input();
  in.micro.label_tokens = kTokens;
  const auto memory = step_memory(in);
  CHECK(memory.activations_per_layer == kLayer);
  // The peak is in the loss: the logits of 64 labels are more than a layer's scratch.
  CHECK(memory.logits > kTokens * 1000 * 2);
  CHECK(memory.activations >= 4 * kLayer);
  CHECK(memory.activations < 5 * kLayer);
  CHECK(memory.fragmentation == 0);
}

TEST_CASE("of layers that differ the one that keeps most counts") {
  nn::CausalLMSpec spec = small();
  spec.layers[1].mlp.intermediate_size += 32;
  MemoryInput in = input();
  in.model = &spec;
  // 32 more of gate and of up.
  CHECK(step_memory(in).activations_per_layer == kLayer + kTokens * 2 * 2 * 32);
}

TEST_CASE("with few labels the peak is in a layer's backward, and of the last one's MLP little is kept") {
  MemoryInput in = input();
  in.micro.label_tokens = 1;
  const auto memory = step_memory(in);
  CHECK(memory.logits == 0);
  CHECK(memory.workspace > 0);
  CHECK(memory.activations >= 3 * kLayer + kAttention);
  CHECK(memory.activations < 4 * kLayer);
}

TEST_CASE("FlashAttention's backward has scratch of 128 rows for each sequence, in fp32") {
  const auto scratch = [](std::int64_t sequences) {
    MemoryInput in = input();
    in.target.device = at::kCUDA;
    in.micro.sequences = sequences;
    return step_memory(in).workspace;
  };
  // Sums of queries' gradients, whose heads of 16 are rounded to 32, and of outputs times their gradients.
  CHECK(scratch(80) - scratch(40) == 40 * 128 * 4 * (32 + 1) * 4);
}

TEST_CASE("recorded micro-steps keep the memory of one more") {
  MemoryInput in = input();
  in.target.device = at::kCUDA;
  const auto plain = step_memory(in);
  CHECK(plain.graphs == 0);
  in.cuda_graphs = true;
  const auto memory = step_memory(in);
  CHECK(memory.graphs == plain.activations + plain.logits + plain.workspace);
  CHECK(memory.total() - plain.total() == memory.graphs + memory.fragmentation - plain.fragmentation);
  CHECK(memory.fragmentation == Approx(2.0 * plain.fragmentation).margin(1));
}

TEST_CASE("checkpointing keeps every layer's input, and one layer at a time is recomputed") {
  MemoryInput in = input();
  in.micro.label_tokens = 1;
  const auto plain = step_memory(in);
  in.saving.checkpointing = config::ActivationCheckpointing::kFull;
  const auto memory = step_memory(in);
  // Behind the first layer the stream is in two parts.
  CHECK(memory.activations_per_layer == 2 * kTokens * 64 * 2);
  CHECK(memory.activations < plain.activations - 3 * kLayer + 4 * kTokens * 64 * 2);
  CHECK(memory.workspace > kLayer - kTokens * 64 * 2);
}

TEST_CASE("with mlp a layer keeps neither gate and up nor what their adapters made") {
  MemoryInput in = input();
  const auto plain = step_memory(in);
  in.saving.checkpointing = config::ActivationCheckpointing::kMlp;
  const auto memory = step_memory(in);
  CHECK(memory.activations_per_layer == plain.activations_per_layer - kTokens * kGateUpOfToken);
  CHECK(memory.total() < plain.total());
}

// What comes and goes in a step of a model with so many layers.
std::int64_t moving_bytes(std::int64_t layers, const config::MemorySaving& saving) {
  nn::ModelShape deep = kSmall;
  deep.layers = layers;
  const nn::CausalLMSpec spec = llama(deep);
  MemoryInput in = input();
  in.model = &spec;
  in.target.device = at::kCUDA;
  in.saving = saving;
  const auto memory = step_memory(in);
  return memory.activations + memory.logits + memory.workspace;
}

TEST_CASE("with offloaded activations a GPU needs no more for more layers") {
  for (const auto& saving : test::savings()) {
    CAPTURE(config::overrides({}, saving));
    const std::int64_t of_layer = moving_bytes(8, saving) - moving_bytes(7, saving);
    CHECK((of_layer == 0) == saving.offload.activations);
  }
}

TEST_CASE("what is offloaded is counted in the host's memory, in blocks of powers of two") {
  MemoryInput in = input();
  in.target.device = at::kCUDA;
  in.saving.offload = {.activations = true, .weights = true};
  const auto memory = step_memory(in);
  CHECK(memory.host_activations > memory.moved_activations);
  CHECK(memory.host_activations < 2 * memory.moved_activations);
  CHECK(memory.host_weights > 0);
  // Two layers, or the head and two layers, beside what the input says is held.
  CHECK(memory.weights > in.frozen_bytes);
  in.target.device = at::kCPU;
  CHECK(step_memory(in).host_activations == 0);
}

TEST_CASE("products that are widened to fp32 keep x A^T in fp32") {
  MemoryInput in = input();
  in.target.native_products = false;
  CHECK(step_memory(in).activations_per_layer == kLayer + kTokens * 7 * 4 * 2);
}

TEST_CASE("fp32 needs no copy of the adapter and more activations") {
  MemoryInput in = input();
  in.policy.compute = DType::kF32;
  const auto memory = step_memory(in);
  CHECK(memory.adapter == 4 * kAdapterOfLayer * 8);
  CHECK(memory.activations_per_layer == 2 * kLayer - kTokens * 4 * 6);
}

TEST_CASE("16-bit products that libtorch does natively on a CPU leave full caches behind, others don't") {
  MemoryInput in = input();
  const std::int64_t full = ops::kProductCacheRules.products * ops::kProductCacheRules.bytes_of_product;
  CHECK(step_memory(in).product_caches == (ops::native_products_are_own() ? 0 : full));
  in.target.native_products = false;
  CHECK(step_memory(in).product_caches == 0);
  in.target.native_products = true;
  in.policy.compute = DType::kF32;
  CHECK(step_memory(in).product_caches == 0);
}

TEST_CASE("a group without an adapter keeps nothing of its own") {
  MemoryInput in = input();
  in.lora.target_modules = {"q_proj", "v_proj"};
  CHECK(step_memory(in).activations_per_layer == kLayer - kTokens * 2 * 5 * 4);
}

TEST_CASE("an 8B Llama keeps at most 96 KB a token and layer, on a CPU and on a GPU") {
  const nn::CausalLMSpec spec = llama({.layers = 32,
                                       .hidden_size = 4096,
                                       .heads = 32,
                                       .kv_heads = 8,
                                       .head_dim = 128,
                                       .intermediate_size = 14336,
                                       .vocab_size = 128256});
  MemoryInput in = input();
  in.model = &spec;
  in.lora.rank = 16;
  for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
    in.target.device = device;
    const auto memory = step_memory(in);
    CHECK(memory.activations_per_layer > kTokens * 90'000);
    CHECK(memory.activations_per_layer <= kTokens * 96'000);
  }
}

TEST_CASE("a GPU's composed norms keep no statistics, and a part of its memory is assumed to be wasted") {
  MemoryInput in = input();
  in.target.device = at::kCUDA;
  const auto memory = step_memory(in);
  // Every tensor takes a multiple of 512 bytes.
  CHECK(memory.activations_per_layer >= kLayer - kTokens * 2 * 4);
  CHECK(memory.activations_per_layer <= kLayer - kTokens * 2 * 4 + 12 * 512);
  CHECK(memory.fragmentation == (memory.activations + memory.logits + memory.workspace) / 16);
}

TEST_CASE("free blocks that wait are counted") {
  const nn::CausalLMSpec spec = llama({.layers = 2,
                                       .hidden_size = 512,
                                       .heads = 8,
                                       .kv_heads = 8,
                                       .head_dim = 64,
                                       .intermediate_size = 1408,
                                       .vocab_size = 1000});
  MemoryInput in = input();
  in.model = &spec;
  in.micro = {.tokens = 4096, .label_tokens = 4096, .longest = 512};
  CHECK(step_memory(in).fragmentation >= static_cast<std::int64_t>(ops::kBlockRules.always_kept_bytes));
}
