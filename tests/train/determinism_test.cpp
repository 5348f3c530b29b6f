#include "train/determinism.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "support/catch.h"
#include "support/poisoned_memory.h"

using namespace lorikeet;

namespace {

// Whether libtorch writes the memory of a new tensor: PoisonedMemory hands out memory in which every bit is
// set.
bool fresh_memory_is_filled() {
  const test::PoisonedMemory poison;
  return (at::empty({64}, at::kLong) != -1).any().item<bool>();
}

}  // namespace

TEST_CASE("deterministic runs use deterministic algorithms, and leave fresh memory as it is") {
  at::Context& context = at::globalContext();
  train::set_deterministic(true);
  CHECK(context.deterministicAlgorithms());
  CHECK_FALSE(fresh_memory_is_filled());
  // What libtorch does by default would be noticed.
  context.setDeterministicFillUninitializedMemory(true);
  CHECK(fresh_memory_is_filled());
  train::set_deterministic(false);
  CHECK_FALSE(context.deterministicAlgorithms());
}
