#include "plan/memory.h"

#include "ops/matmul/product_cache.h"
#include "support/catch.h"

using namespace lorikeet;
using plan::Kernels;
using plan::MemoryInput;
using plan::step_memory;

namespace {

// Numbers that can be followed by hand, and too small for the allocator to keep any block.
MemoryInput input() {
  MemoryInput in;
  in.shape = {.layers = 2,
              .hidden_size = 8,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 2,
              .intermediate_size = 16,
              .vocab_size = 1000};
  in.frozen_bytes = 5000;
  in.adapter_parameters = 100;
  in.group_columns = {12, 4, 8, 4};
  in.tokens = 10;
  in.label_tokens = 6;
  in.longest = 0;  // no scratch for attention
  in.head_chunk_rows = 4;
  return in;
}

// Bytes a token: two norms' inputs 32, q, k, v 32, attention's result 16, gate and up 64; 28 columns of
// adapters; fp32: four heads' softmax and two norms' statistics.
constexpr std::int64_t kLayer = 10 * (32 + 32 + 16 + 64 + 2 * 28 + 4 * 6);
constexpr std::int64_t kRotary = 10 * 2 * 4;  // sines and cosines of half a head, in fp32

}  // namespace

TEST_CASE("weights, adapter and optimizer follow from their sizes") {
  const auto memory = step_memory(input());
  CHECK(memory.weights == 5000);
  // fp32 values and gradients and a bf16 copy; two fp32 moments.
  CHECK(memory.adapter == 100 * (4 + 4 + 2));
  CHECK(memory.optimizer == 100 * 8);
  CHECK(memory.held() == memory.weights + memory.adapter + memory.optimizer);
  CHECK(memory.total() == memory.held() + memory.activations + memory.logits + memory.workspace +
                              memory.fragmentation + memory.product_caches + memory.runtime);
  std::int64_t sum = 0;
  for (const auto& [part, bytes] : memory.rows()) sum += bytes;
  CHECK(sum == memory.total());
}

TEST_CASE("with a large vocabulary the peak is in the loss") {
  const auto memory = step_memory(input());
  CHECK(memory.activations_per_layer == kLayer);
  // Beside the layers the final norm's input and statistics.
  CHECK(memory.activations == 2 * kLayer + 10 * (16 + 4));
  CHECK(memory.logits == 4 * 1000 * 2);
  // The final norm's result, its gradient, and four rows of both.
  CHECK(memory.workspace == kRotary + 2 * 160 + 2 * 4 * 16);
  CHECK(memory.fragmentation == 0);
}

TEST_CASE("with a small one it is in the last layer's backward") {
  MemoryInput in = input();
  in.shape.vocab_size = 10;
  const auto memory = step_memory(in);
  CHECK(memory.logits == 0);
  CHECK(memory.activations == 2 * kLayer);
  // In the down projection: its gradient, its input's, those of its adapter's columns, its input again and in
  // fp32.
  CHECK(memory.workspace == kRotary + 160 + 320 + 80 + 320 + 640);
}

TEST_CASE("products that are widened to fp32 move it to gate and up, whose input is the widest") {
  MemoryInput in = input();
  in.shape.vocab_size = 10;
  in.kernels = Kernels::kCpuWidened;
  const auto memory = step_memory(in);
  const std::int64_t layer = kLayer + 10 * 2 * 28;  // x A^T in fp32
  CHECK(memory.activations_per_layer == layer);
  // What down kept is gone; the gradients of gate and up lie where these were.
  CHECK(memory.activations == 2 * layer - 160);
  CHECK(memory.workspace == kRotary + 160 + 160 + 1280 + 320 + 160 + 320);
}

TEST_CASE("checkpointing keeps every layer's input and, in backward, one layer") {
  MemoryInput in = input();
  in.shape.layers = 20;
  CHECK(step_memory(in).activations == 20 * kLayer + 10 * (16 + 4));
  in.checkpointing = true;
  const auto in_loss = step_memory(in);
  CHECK(in_loss.activations == 20 * 160 + 10 * (16 + 4));
  in.shape.vocab_size = 10;
  const auto in_backward = step_memory(in);
  // The last layer's input is a part of what it keeps; behind it its result was made once more.
  CHECK(in_backward.activations == 19 * 160 + kLayer);
  CHECK(in_backward.activations_per_layer == kLayer);
}

TEST_CASE("fp32 needs no copy of the adapter and more activations") {
  MemoryInput in = input();
  in.policy.compute = DType::kF32;
  const auto memory = step_memory(in);
  CHECK(memory.adapter == 100 * 8);
  CHECK(memory.activations_per_layer == 2 * (kLayer - 10 * 4 * 6) + 10 * 4 * 6);
}

TEST_CASE("16-bit products that a CPU does natively leave full caches behind, others don't") {
  MemoryInput in = input();
  CHECK(step_memory(in).product_caches ==
        ops::kProductCacheRules.products * ops::kProductCacheRules.bytes_of_product);
  in.kernels = Kernels::kCpuWidened;
  CHECK(step_memory(in).product_caches == 0);
  in.kernels = Kernels::kCpu;
  in.policy.compute = DType::kF32;
  CHECK(step_memory(in).product_caches == 0);
}

TEST_CASE("a group without an adapter keeps nothing of its own") {
  MemoryInput in = input();
  in.group_columns = {8, 0, 0, 0};  // q and v alone
  CHECK(step_memory(in).activations_per_layer == kLayer - 10 * 2 * 20);
}

TEST_CASE("an 8B Llama keeps at most 96 KB a token and layer, on a CPU and on a GPU") {
  MemoryInput in = input();
  in.shape = {.layers = 32,
              .hidden_size = 4096,
              .heads = 32,
              .kv_heads = 8,
              .head_dim = 128,
              .intermediate_size = 14336,
              .vocab_size = 128256};
  in.group_columns = {48, 16, 32, 16};
  for (const Kernels kernels : {Kernels::kCpu, Kernels::kCuda}) {
    in.kernels = kernels;
    CHECK(step_memory(in).activations_per_layer <= in.tokens * 96'000);
  }
}

TEST_CASE("a GPU's composed norms keep no statistics, and its loss three chunks of logits") {
  MemoryInput in = input();
  in.kernels = Kernels::kCuda;
  const auto memory = step_memory(in);
  CHECK(memory.activations_per_layer == kLayer - 10 * 2 * 4);
  CHECK(memory.logits == 4 * 1000 * (2 + 4 + 4));
  CHECK(memory.fragmentation == (memory.activations + memory.logits + memory.workspace) / 16);
}
