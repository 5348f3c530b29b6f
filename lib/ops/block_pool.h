#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <unordered_map>

namespace lorikeet::ops {

/// How the CPU allocator treats blocks of memory.
struct BlockRules {
  std::size_t least_bytes = std::size_t{256} << 10;  ///< smaller tensors are left to the heap
  std::size_t huge_page_bytes = std::size_t{2} << 20;
  std::size_t granule_bytes = std::size_t{64} << 10;      ///< of blocks that are smaller than a huge page
  std::size_t always_kept_bytes = std::size_t{32} << 20;  ///< free blocks beside the most that was in use,
  std::size_t kept_part = 16;                             ///< or this part of it
  std::size_t slack_part = 8;  ///< a block serves a tensor that it exceeds by this part at most

  /// The most bytes of free blocks beside `used`, the most that was in use at one time.
  constexpr std::size_t most_kept(std::size_t used) const {
    return std::max(always_kept_bytes, used / kept_part);
  }
  /// What the block of a tensor of `bytes` begins at a multiple of and is made of: huge pages, or granules.
  constexpr std::size_t granule(std::size_t bytes) const {
    return bytes < huge_page_bytes ? granule_bytes : huge_page_bytes;
  }
  constexpr std::size_t whole(std::size_t bytes) const {
    return (bytes + granule(bytes) - 1) / granule(bytes) * granule(bytes);
  }
};
inline constexpr BlockRules kBlockRules;

/// Bytes of a pool's blocks.
struct PoolMemory {
  std::size_t used = 0;      ///< in use, whole blocks
  std::size_t kept = 0;      ///< free and waiting, whole blocks
  std::size_t resident = 0;  ///< of both, what a tensor has covered: behind it a block stays untouched
};

/// Which free block serves a tensor, and how many wait: a freed block serves the next tensor of about its
/// size. All blocks together stay below the most that was in use at one time and BlockRules::most_kept of it:
/// what a step's peak took is there for the next step's, and no page is cleared twice. The oldest go first.
/// Not thread-safe.
class BlockPool {
 public:
  /// Where new blocks come from and dropped ones go; addresses are only compared.
  class Source {
   public:
    virtual ~Source() = default;
    /// A block of `bytes`, kBlockRules.whole(asked), of which `asked` will be used.
    virtual void* map(std::size_t bytes, std::size_t asked) = 0;
    virtual void unmap(void* block, std::size_t bytes) = 0;
  };
  explicit BlockPool(Source& source) : source_(source) {}

  void* take(std::size_t asked);
  /// False when `data` is no block in use.
  bool give_back(void* data);
  /// Gives all waiting blocks back to their source, and forgets what was in use before.
  void drop_kept();

  const PoolMemory& memory() const { return memory_; }

 private:
  struct Block {
    void* data;
    std::size_t bytes, resident;
    std::size_t asked = 0;  // by the tensor that it serves
  };
  using Kept = std::list<Block>;  // oldest first

  void drop_oldest();
  // Until so many bytes more may be resident.
  void make_room(std::size_t bytes);

  Source& source_;
  std::unordered_map<void*, Block> used_;
  Kept kept_;
  std::multimap<std::size_t, Kept::iterator> by_size_;
  PoolMemory memory_;
  std::size_t asked_ = 0, most_asked_ = 0;  // of all blocks in use
};

}  // namespace lorikeet::ops
