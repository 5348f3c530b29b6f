#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "card/streams.h"

// The cards' memory: one range of a memory file, mapped three times. Tensors hold addresses in the first
// mapping, which the host may not touch: a host that follows such a pointer dies with its call stack, as it
// would read garbage or die with a card. What plays the card uses the second mapping; a third is for the
// fillings, which are no launch's (traffic.h). Memory is filled with 0xFF (NaN in every floating-point dtype)
// when it is allocated and when it is freed.
namespace lorikeet::card {

struct Block {
  std::size_t bytes = 0;
  int card = 0;
  AccessHistory history;
};

/// Throws c10::OutOfMemoryError when the card has less than `bytes` left. FAKE_CARD_MIB sets the
/// size of a card's memory; without it all cards share one range of 64 GiB.
void* allocate(std::size_t bytes, int card);
/// Counts a hazard when the block was written after it had been freed, once its memory is allocated again.
void release(void* data);

bool is_card_memory(const void* data);
/// The allocated block that holds this address, or nullptr.
Block* block_of(const void* data);
/// Where the card finds what an address of its memory names; other addresses stay what they are.
void* on_card(const void* data);

/// All memory that was ever allocated, as it is now, and back to that; what was allocated since is filled
/// anew.
std::vector<char> memory_content();
void restore_memory(const std::vector<char>& content);

/// All memory that was ever allocated and the next 64 MiB, where the card finds it.
struct CardView {
  char* data = nullptr;
  std::size_t bytes = 0;
};
CardView card_view_in_use();

/// Makes the process report the call stack when it dies of touching card memory. Done at the first
/// allocation; again where somebody else has taken SIGSEGV since.
void report_host_access();

std::int64_t used_bytes(int card);
std::int64_t peak_bytes(int card);
void reset_peak(int card);

}  // namespace lorikeet::card
