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

// Bytes a token: two norms' inputs 32, their results 32, q, k, v 32, attention's result 16, gate and up 64,
// their product 32; 28 columns of adapters; fp32: four heads' softmax and two norms' scales.
constexpr std::int64_t kLayer = 10 * (32 + 32 + 32 + 16 + 64 + 32 + 2 * 28 + 4 * 6);
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
  // Beside the layers the final norm's input, scale and result.
  CHECK(memory.activations == 2 * kLayer + 10 * (16 + 4 + 16));
  CHECK(memory.logits == 4 * 1000 * 2);
  // The hidden states' gradient, and four rows of the hidden states and of theirs.
  CHECK(memory.workspace == kRotary + 160 + 2 * 4 * 16);
  CHECK(memory.fragmentation == 0);
}

TEST_CASE("with a small one it is in the last layer's backward") {
  MemoryInput in = input();
  in.shape.vocab_size = 10;
  const auto memory = step_memory(in);
  CHECK(memory.logits == 0);
  CHECK(memory.activations == 2 * kLayer);
  // In the down projection: its gradient, its input's, those of its adapter's columns, its input in fp32.
  CHECK(memory.workspace == kRotary + 160 + 320 + 80 + 640);
}

TEST_CASE("products that are widened to fp32 move it to gate and up, whose input is the widest") {
  MemoryInput in = input();
  in.shape.vocab_size = 10;
  in.kernels = Kernels::kCpuWidened;
  const auto memory = step_memory(in);
  const std::int64_t layer = kLayer + 10 * 2 * 28;  // x A^T in fp32
  CHECK(memory.activations_per_layer == layer);
  // What down and the gate kept is gone.
  CHECK(memory.activations == 2 * layer - (320 + 160) - 640);
  CHECK(memory.workspace == kRotary + 160 + 640 + 160 + 1280 + 320 + 320);
}

TEST_CASE("checkpointing keeps every layer's input and, in backward, one layer") {
  MemoryInput in = input();
  in.shape.layers = 20;
  CHECK(step_memory(in).activations == 20 * kLayer + 10 * (16 + 4 + 16));
  in.checkpointing = true;
  const auto in_loss = step_memory(in);
  CHECK(in_loss.activations == 160 + 19 * 320 + 10 * (16 + 4 + 16));
  in.shape.vocab_size = 10;
  const auto in_backward = step_memory(in);
  CHECK(in_backward.activations == 160 + 19 * 320 + kLayer + 160);
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

TEST_CASE("a group without an adapter keeps no input of its own") {
  MemoryInput in = input();
  in.group_columns = {8, 0, 0, 0};  // q and v alone
  // Without the results of the second norm and of the gate, and with 8 columns.
  CHECK(step_memory(in).activations_per_layer == kLayer - 10 * (16 + 32 + 2 * 20));
}

TEST_CASE("a GPU's composed operators keep fp32 copies, and its loss three chunks of logits") {
  MemoryInput in = input();
  in.kernels = Kernels::kCuda;
  const auto memory = step_memory(in);
  // Norms' inputs in fp32; gate, up and the bent gate too.
  CHECK(memory.activations_per_layer == kLayer + 10 * (64 - 32) + 10 * (3 * 64 - 64));
  CHECK(memory.logits == 4 * 1000 * (2 + 4 + 4));
  CHECK(memory.fragmentation == (memory.activations + memory.logits + memory.workspace) / 16);
}
