#include "nn/kv_cache.h"

#include <ATen/ATen.h>

#include "support/catch.h"

using namespace lorikeet::nn;

namespace {

// Rows [begin, end) of something that no other layer or call has.
at::Tensor rows(std::int64_t count, std::int64_t first) {
  return (at::arange(count * 2 * 3, at::TensorOptions(at::kFloat)) + static_cast<double>(1000 * first))
      .view({count, 2, 3});
}

}  // namespace

TEST_CASE("appended keys and values stand behind earlier ones of their sequence and layer") {
  KvCache cache(2, 2);
  const at::Tensor k0 = rows(5, 1), v0 = rows(5, 2), k1 = rows(3, 3), v1 = rows(3, 4);
  cache.append(0, k0, v0, {0, 4, 5});
  cache.append(1, v0, k0, {0, 4, 5});
  cache.append(0, k1, v1, {0, 1, 3});
  CHECK(at::equal(cache.keys(0)[0], at::cat({k0.slice(0, 0, 4), k1.slice(0, 0, 1)})));
  CHECK(at::equal(cache.keys(0)[1], at::cat({k0.slice(0, 4, 5), k1.slice(0, 1, 3)})));
  CHECK(at::equal(cache.values(0)[1], at::cat({v0.slice(0, 4, 5), v1.slice(0, 1, 3)})));
  CHECK(at::equal(cache.keys(1)[0], v0.slice(0, 0, 4)));
}

TEST_CASE("a cache keeps what it holds when it grows beyond its buffers") {
  KvCache cache(1, 1);
  std::vector<at::Tensor> all;
  for (std::int64_t i = 0; i < 9; ++i) {
    all.push_back(rows(40, i));
    cache.append(0, all.back(), all.back() + 0.5, {0, 40});
  }
  CHECK(at::equal(cache.keys(0)[0], at::cat(all)));
  CHECK(at::equal(cache.values(0)[0], at::cat(all) + 0.5));
}

TEST_CASE("a sequence may append nothing") {
  KvCache cache(1, 2);
  cache.append(0, rows(2, 1), rows(2, 2), {0, 0, 2});
  CHECK(cache.keys(0)[0].size(0) == 0);
  CHECK(cache.keys(0)[1].size(0) == 2);
}

TEST_CASE("keep drops the sequences that are not named, in every layer") {
  KvCache cache(2, 3);
  const at::Tensor k = rows(6, 1), v = rows(6, 2);
  for (std::int64_t layer = 0; layer < 2; ++layer) cache.append(layer, k, v, {0, 1, 3, 6});
  cache.keep({0, 2});
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    CHECK(cache.keys(layer).size() == 2);
    CHECK(at::equal(cache.keys(layer)[0], k.slice(0, 0, 1)));
    CHECK(at::equal(cache.keys(layer)[1], k.slice(0, 3, 6)));
  }
  cache.append(0, rows(2, 3), rows(2, 4), {0, 1, 2});
  CHECK(at::equal(cache.values(0)[1], at::cat({v.slice(0, 3, 6), rows(2, 4).slice(0, 1, 2)})));
}

TEST_CASE("a cleared sequence starts again, the others stay") {
  KvCache cache(2, 2);
  const at::Tensor k = rows(3, 1), v = rows(3, 2);
  for (std::int64_t layer = 0; layer < 2; ++layer) cache.append(layer, k, v, {0, 1, 3});
  cache.clear(1);
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    cache.append(layer, rows(1, 3), rows(1, 4), {0, 0, 1});
    CHECK(at::equal(cache.keys(layer)[0], k.slice(0, 0, 1)));
    CHECK(at::equal(cache.keys(layer)[1], rows(1, 3)));
  }
}
