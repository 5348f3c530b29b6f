#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

namespace lorikeet::plan {

/// What a block of memory is for.
enum class Part { kWeights, kAdapter, kOptimizer, kActivations, kLogits, kWorkspace };
inline constexpr std::size_t kParts = 6;

/// Memory at one moment, in bytes.
struct MemoryMoment {
  std::array<std::int64_t, kParts> used{};  ///< by part
  std::int64_t kept = 0;                    ///< given back, and held by the allocator for what comes

  std::int64_t of(Part part) const { return used[static_cast<std::size_t>(part)]; }
  std::int64_t total() const;
};

/// Follows the blocks that a program takes and gives back, by the rules of the allocator it runs on, and
/// remembers the moment when most was held.
class Tape {
 public:
  enum class Allocator {
    kCpu,      ///< ops::install_cpu_allocator's: large free blocks wait for a tensor of about their size
    kExactly,  ///< nothing is held but what is in use: what libtorch counts as allocated on a GPU
  };
  explicit Tape(Allocator allocator) : allocator_(allocator) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// In use until the last copy is gone, as a tensor's memory is. Must not outlive the tape.
  using Block = std::shared_ptr<const void>;
  Block take(Part part, std::int64_t bytes);

  const MemoryMoment& peak() const { return peak_; }

 private:
  void give_back(Part part, std::int64_t bytes, std::int64_t held);
  std::int64_t reuse(std::int64_t bytes);
  void note_peak();

  Allocator allocator_;
  MemoryMoment now_, peak_;
  std::int64_t large_used_ = 0;
  std::list<std::int64_t> kept_;  // free blocks, oldest first
};

}  // namespace lorikeet::plan
