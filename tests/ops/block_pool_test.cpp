#include "ops/block_pool.h"

#include <cstdint>
#include <map>
#include <vector>

#include "support/catch.h"

using namespace lorikeet;
using ops::BlockPool;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Addresses without memory, and which of them are mapped.
class Addresses final : public BlockPool::Source {
 public:
  void* map(std::size_t bytes, std::size_t /*asked*/) override {
    next_ += bytes;
    void* block = reinterpret_cast<void*>(next_);
    mapped[block] = bytes;
    return block;
  }
  void unmap(void* block, std::size_t bytes) override {
    CHECK(mapped.at(block) == bytes);
    mapped.erase(block);
  }
  std::map<void*, std::size_t> mapped;

 private:
  std::uintptr_t next_ = 0;
};

}  // namespace

TEST_CASE("a tensor gets a waiting block of about its size, else a new one") {
  Addresses addresses;
  BlockPool pool(addresses);
  void* first = pool.take(40 * kMiB);
  CHECK(pool.give_back(first));
  CHECK_FALSE(pool.give_back(first));  // not in use any more
  void* same = pool.take(39 * kMiB);
  CHECK(same == first);
  void* other = pool.take(20 * kMiB);
  CHECK(pool.give_back(other));
  CHECK(pool.take(10 * kMiB) != other);  // the waiting 20 MiB are too large
  CHECK(addresses.mapped.size() == 3);
  CHECK(pool.memory().used == (40 + 10) * kMiB);
  CHECK(pool.memory().kept == 20 * kMiB);
}

TEST_CASE("what no tensor has covered isn't resident") {
  Addresses addresses;
  BlockPool pool(addresses);
  void* block = pool.take(3 * kMiB);  // a block of 4
  CHECK(pool.memory().used == 4 * kMiB);
  CHECK(pool.memory().resident == 3 * kMiB);
  CHECK(pool.give_back(block));
  CHECK(pool.memory().resident == 3 * kMiB);
  CHECK(pool.take(4 * kMiB) == block);
  CHECK(pool.memory().resident == 4 * kMiB);
}

TEST_CASE("what a step's peak took waits for the next step's") {
  Addresses addresses;
  BlockPool pool(addresses);
  std::vector<void*> kept;
  const auto step = [&] {
    for (const std::size_t size : {200, 100, 30}) kept.push_back(pool.take(size * kMiB));
    for (void* block : kept) pool.give_back(block);
    kept.clear();
  };
  step();
  const auto mapped = addresses.mapped;
  CHECK(mapped.size() == 3);
  CHECK(pool.memory().used == 0);
  CHECK(pool.memory().kept == 330 * kMiB);
  step();
  CHECK(addresses.mapped == mapped);
}

TEST_CASE("all blocks stay below the most in use and 32 MiB or a sixteenth of it, the oldest go first") {
  Addresses addresses;
  BlockPool pool(addresses);
  void* oldest = pool.take(50 * kMiB);
  void* newer = pool.take(30 * kMiB);
  pool.give_back(oldest);
  pool.give_back(newer);
  void* other = pool.take(100 * kMiB);  // 132 may be there
  CHECK_FALSE(addresses.mapped.contains(oldest));
  CHECK(addresses.mapped.contains(newer));
  CHECK(pool.memory().kept == 30 * kMiB);
  CHECK(pool.memory().resident == 130 * kMiB);
  pool.give_back(other);
  CHECK(pool.memory().kept == 130 * kMiB);

  pool.give_back(pool.take(800 * kMiB));
  CHECK(pool.memory().kept == 800 * kMiB);  // 850 may be there
  CHECK_FALSE(addresses.mapped.contains(newer));
  void* large = pool.take(700 * kMiB);  // the waiting 800 are too large for it, and go
  CHECK(pool.memory().used == 700 * kMiB);
  CHECK(pool.memory().kept == 0);
  pool.give_back(large);

  pool.drop_kept();
  CHECK(addresses.mapped.empty());
  CHECK(pool.memory().resident == 0);
  pool.give_back(pool.take(60 * kMiB));
  pool.give_back(pool.take(40 * kMiB));
  CHECK(pool.memory().kept == 40 * kMiB);  // 92 may be there
}
