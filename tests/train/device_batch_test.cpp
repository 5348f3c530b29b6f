#include "train/device_batch.h"

#include <ATen/ATen.h>

#include "support/catch.h"

using namespace lorikeet;

namespace {

// Two sequences of 3 and 2 tokens, and one that holds none.
data::MicroBatch micro_batch(std::int64_t first_token) {
  return {.tokens = {first_token, 11, 12, 20, 21},
          .position_ids = {0, 1, 2, 0, 1},
          .cu_seqlens = {0, 3, 5, 5},
          .labels = {-100, 12, -100, 21, -100},
          .label_rows = {1, 3},
          .sample_ids = {7, std::int64_t{1} << 40, -1},
          .max_seqlen = 3,
          .real_tokens = 5};
}

template <typename T>
void check_values(const at::Tensor& tensor, const std::vector<T>& expected) {
  CHECK(at::equal(tensor, at::tensor(expected)));
  CHECK(tensor.is_contiguous());
  CHECK(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0);
}

}  // namespace

TEST_CASE("a batch holds its micro-batch's arrays, with sample ids by token and labels by label row") {
  const data::MicroBatch micro = micro_batch(10);
  const nn::Batch batch = train::to_device(micro, at::kCPU);
  check_values(batch.tokens, micro.tokens);
  check_values(batch.position_ids, micro.position_ids);
  check_values<std::int64_t>(batch.sample_ids, {7, 7, 7, std::int64_t{1} << 40, std::int64_t{1} << 40});
  check_values(batch.sequences.cu_seqlens_device, micro.cu_seqlens);
  check_values(batch.label_rows, micro.label_rows);
  check_values<std::int64_t>(batch.labels, {12, 21});
  CHECK(batch.sequences.cu_seqlens == micro.cu_seqlens);
  CHECK(batch.sequences.max_seqlen == 3);
  CHECK(batch.label_count == 2);
  CHECK(batch.positions == 3);
  CHECK(batch.real_tokens == 5);
}

TEST_CASE("the batches of a step share one buffer") {
  const std::vector<data::MicroBatch> micros{micro_batch(10), data::filler_batch(), micro_batch(99)};
  const auto batches = train::to_device(micros, at::kCPU);
  REQUIRE(batches.size() == 3);
  for (std::size_t i = 0; i < micros.size(); ++i) {
    check_values(batches[i].tokens, micros[i].tokens);
    check_values(batches[i].sequences.cu_seqlens_device, micros[i].cu_seqlens);
    check_values(batches[i].label_rows, micros[i].label_rows);
    CHECK(batches[i].labels.numel() == micros[i].label_count());
    CHECK(batches[i].labels.storage().data() == batches[0].tokens.storage().data());
  }
  CHECK(train::to_device(std::vector<data::MicroBatch>{}, at::kCPU).empty());
}
