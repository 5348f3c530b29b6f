#include "plan/memory.h"

#include "support/catch.h"

using namespace lorikeet;
using plan::MemoryInput;
using plan::step_memory;

namespace {

// Numbers that can be followed by hand.
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
  in.adapter_columns = 28;
  in.tokens = 10;
  in.label_tokens = 6;
  in.head_chunk_rows = 4;
  return in;
}

}  // namespace

TEST_CASE("each part of a step's memory follows from the shapes") {
  const auto memory = step_memory(input());
  CHECK(memory.weights == 5000);
  // fp32 value, gradient and two moments, and a bf16 copy.
  CHECK(memory.adapter == 100 * (4 + 4 + 8 + 2));
  // Elements a token and layer: stream and norm twice 32, qkv 16, attention's result 8, MLP 48; 14 adapter
  // columns; fp32: 4 heads and 2 norms. Beside them the stream behind the last layer.
  const std::int64_t layer = 2 * (32 + 16 + 8 + 48) + 2 * 14 + 4 * 6;
  CHECK(memory.activations == 10 * (2 * layer + 2 * 2 * 8));
  // The loss: hidden states and their gradient, four rows of logits, and those rows of both.
  CHECK(memory.working == 2 * (2 * 10 * 8 + 4 * 1000) + 2 * 2 * 4 * 8);
  CHECK(memory.total() ==
        memory.weights + memory.adapter + memory.activations + memory.working + memory.runtime);
}

TEST_CASE("a small vocabulary leaves the peak to a layer's backward") {
  MemoryInput in = input();
  in.shape.vocab_size = 10;
  CHECK(step_memory(in).working == 10 * 2 * (2 * 16 + 2 * 8));
  in.native_products = false;
  CHECK(step_memory(in).working == 10 * (2 * (2 * 16 + 2 * 8) + 4 * (2 * 16 + 8)));
}

TEST_CASE("checkpointing keeps one layer and every layer's input") {
  MemoryInput in = input();
  in.shape.layers = 20;
  in.adapter_columns = 280;
  const auto all = step_memory(in);
  in.checkpointing = true;
  const auto checkpointed = step_memory(in);
  const std::int64_t layer = 2 * (32 + 16 + 8 + 48) + 2 * 14 + 4 * 6;
  CHECK(all.activations == 10 * (20 * layer + 32));
  CHECK(checkpointed.activations == 10 * (20 * 32 + layer));
  CHECK(checkpointed.weights == all.weights);
}

TEST_CASE("fp32 needs no copy of the adapter and twice the activations") {
  MemoryInput in = input();
  in.policy.compute = DType::kF32;
  const auto memory = step_memory(in);
  CHECK(memory.adapter == 100 * 16);
  CHECK(memory.activations > step_memory(input()).activations * 3 / 2);
}
