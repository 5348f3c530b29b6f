#include "plan/tape.h"

#include "support/catch.h"

using namespace lorikeet;
using plan::Part;
using plan::Tape;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

TEST_CASE("the peak is the moment when most was held, by part") {
  Tape tape(Tape::Allocator::kExactly);
  const auto weights = tape.take(Part::kWeights, 100);
  { const auto first = tape.take(Part::kActivations, 50); }
  const auto second = tape.take(Part::kWorkspace, 40);
  CHECK(tape.peak().total() == 150);
  CHECK(tape.peak().of(Part::kActivations) == 50);
  CHECK(tape.peak().of(Part::kWorkspace) == 0);
}

TEST_CASE("a block lives as long as its last copy") {
  Tape tape(Tape::Allocator::kExactly);
  auto first = tape.take(Part::kActivations, 50);
  auto copy = first;
  first.reset();
  const auto second = tape.take(Part::kActivations, 10);
  CHECK(tape.peak().total() == 60);
}

TEST_CASE("the CPU's allocator serves a tensor from a free block of its size, else from new memory") {
  Tape tape(Tape::Allocator::kCpu);
  tape.take(Part::kWorkspace, 40 * kMiB);
  const auto same = tape.take(Part::kWorkspace, 39 * kMiB);
  CHECK(tape.peak().total() == 40 * kMiB);
  tape.take(Part::kWorkspace, 20 * kMiB);
  const auto smaller = tape.take(Part::kWorkspace, 10 * kMiB);  // the free 20 MiB are too large
  CHECK(tape.peak().total() == (39 + 20 + 10) * kMiB);
  CHECK(tape.peak().kept == 20 * kMiB);
}

TEST_CASE("free blocks wait up to 64 MiB or an eighth of what is in use, the oldest go first") {
  Tape tape(Tape::Allocator::kCpu);
  tape.take(Part::kWorkspace, 100 * kMiB);
  tape.take(Part::kWorkspace, 50 * kMiB);
  tape.take(Part::kWorkspace, 10 * kMiB);
  tape.take(Part::kWorkspace, 30 * kMiB);  // the 50 go
  const auto other = tape.take(Part::kActivations, 100 * kMiB);
  CHECK(tape.peak().total() == 140 * kMiB);

  Tape large(Tape::Allocator::kCpu);
  const auto weights = large.take(Part::kWeights, 800 * kMiB);
  large.take(Part::kWorkspace, 90 * kMiB);
  const auto beside = large.take(Part::kActivations, 200 * kMiB);
  CHECK(large.peak().kept == 90 * kMiB);
}

TEST_CASE("tensors below 2 MiB leave nothing behind") {
  Tape tape(Tape::Allocator::kCpu);
  tape.take(Part::kWorkspace, kMiB);
  const auto block = tape.take(Part::kWorkspace, kMiB / 2);
  CHECK(tape.peak().total() == kMiB);
}
