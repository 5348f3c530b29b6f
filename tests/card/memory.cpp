#include "card/memory.h"

#include <c10/util/Exception.h>
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>

#include "card/graph.h"
#include "card/report.h"
#include "card/traffic.h"

namespace lorikeet::card {
namespace {

constexpr std::size_t kRange = std::size_t{64} << 30;  // of addresses; pages are taken when they are written
constexpr std::size_t kUnit = 512;                     // what libtorch's allocator rounds sizes to
constexpr unsigned char kPoison = 0xFF;

char* host_view = nullptr;  // no access
char* card_view = nullptr;
char* fill_view = nullptr;

void handle_access(int signal_number, siginfo_t* info, void* context) {
  if (note_fault(info->si_addr, context)) return;
  if (is_card_memory(info->si_addr)) {
    constexpr char kText[] = "\nfake card: the host touched card memory; its call stack:\n";
    (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
    std::array<void*, 24> frames{};
    backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
  }
  std::signal(signal_number, SIG_DFL);  // the access is tried again, and ends the process
}

void map_memory() {
  const int file = memfd_create("fake card", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(kRange)) == 0, "fake card: no memory file");
  const auto map = [file](int protection) {
    void* view = mmap(nullptr, kRange, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(view != MAP_FAILED, "fake card: can't map its memory");
    return static_cast<char*>(view);
  };
  host_view = map(PROT_NONE);
  card_view = map(PROT_READ | PROT_WRITE);
  fill_view = map(PROT_READ | PROT_WRITE);
  close(file);
  report_host_access();
}

void* to_fill(const char* data) { return fill_view + (data - host_view); }

// FAKE_CARD_MIB: of each card, "100", or of one after the other, "4000,100".
std::array<std::int64_t, kCards> card_sizes() {
  std::array<std::int64_t, kCards> sizes{};
  sizes.fill(std::numeric_limits<std::int64_t>::max());
  const char* mib = std::getenv("FAKE_CARD_MIB");
  for (std::size_t card = 0; mib != nullptr && card < sizes.size(); ++card) {
    sizes[card] = std::stoll(mib) << 20;
    if (const char* comma = std::strchr(mib, ',')) mib = comma + 1;
  }
  return sizes;
}

class Memory {
 public:
  Memory() { map_memory(); }

  void* allocate(std::size_t wanted, int card) {
    const std::size_t bytes = (wanted + kUnit - 1) / kUnit * kUnit;
    Use& use = uses_.at(static_cast<std::size_t>(card));
    TORCH_CHECK_WITH(OutOfMemoryError,
                     use.now + static_cast<std::int64_t>(bytes) <= sizes_.at(static_cast<std::size_t>(card)),
                     "fake card out of memory: ", bytes, " bytes wanted on cuda:", card, ", ", use.now,
                     " in use");
    char* data = take(bytes);
    blocks_[data] = {.bytes = bytes, .card = card, .history = {}};
    use.now += static_cast<std::int64_t>(bytes);
    use.peak = std::max(use.peak, use.now);
    ++report().allocations;
    note_allocated(data);
    return data;
  }

  void release(char* data) {
    const auto found = blocks_.find(data);
    if (found == blocks_.end() || keeps_freed(data)) return;
    const Block& block = found->second;
    std::memset(to_fill(data), kPoison, block.bytes);
    uses_.at(static_cast<std::size_t>(block.card)).now -= static_cast<std::int64_t>(block.bytes);
    freed_.emplace(block.bytes, data);
    blocks_.erase(found);
  }

  Block* block_of(const char* data) {
    auto found = blocks_.upper_bound(const_cast<char*>(data));
    if (found == blocks_.begin()) return nullptr;
    --found;
    return data < found->first + found->second.bytes ? &found->second : nullptr;
  }

  struct Use {
    std::int64_t now = 0, peak = 0;
  };
  std::size_t taken() const { return taken_; }
  Use& use(int card) { return uses_.at(static_cast<std::size_t>(card)); }

 private:
  char* take(std::size_t bytes) {
    const auto found = freed_.find(bytes);
    if (found == freed_.end()) {
      TORCH_CHECK_WITH(OutOfMemoryError, taken_ + bytes <= kRange, "fake card: its range is used up");
      char* data = host_view + taken_;
      taken_ += bytes;
      std::memset(to_fill(data), kPoison, bytes);
      return data;
    }
    char* data = found->second;
    freed_.erase(found);
    const auto* content = static_cast<const unsigned char*>(to_fill(data));
    // Every byte is the poison when the first one is, and each equals the next.
    if (content[0] != kPoison || std::memcmp(content, content + 1, bytes - 1) != 0) {
      count_hazard("card memory was written after it had been freed");
      std::memset(to_fill(data), kPoison, bytes);
    }
    return data;
  }

  const std::array<std::int64_t, kCards> sizes_ = card_sizes();
  std::size_t taken_ = 0;
  std::map<char*, Block> blocks_;
  std::multimap<std::size_t, char*> freed_;  // by size: only a block of the same size is given out again
  std::array<Use, kCards> uses_{};
};

// Never destroyed: tensors of static storage are freed later.
Memory& memory() {
  static auto* const one = new Memory;
  return *one;
}

}  // namespace

void* allocate(std::size_t bytes, int card) {
  const Lock lock(mutex());
  return memory().allocate(bytes, card);
}

void release(void* data) {
  const Lock lock(mutex());
  memory().release(static_cast<char*>(data));
}

bool is_card_memory(const void* data) {
  const auto* at = static_cast<const char*>(data);
  return host_view != nullptr && at >= host_view && at < host_view + kRange;
}

void report_host_access() {
  std::array<void*, 1> frames{};
  backtrace(frames.data(), frames.size());  // loads what it needs now: a signal handler may not
  struct sigaction action = {};
  action.sa_sigaction = handle_access;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

Block* block_of(const void* data) {
  const Lock lock(mutex());
  return is_card_memory(data) ? memory().block_of(static_cast<const char*>(data)) : nullptr;
}

void* on_card(const void* data) {
  auto* at = static_cast<char*>(const_cast<void*>(data));
  return is_card_memory(data) ? card_view + (at - host_view) : at;
}

std::vector<char> memory_content() {
  const Lock lock(mutex());
  const char* begin = fill_view;
  return {begin, begin + memory().taken()};
}

void restore_memory(const std::vector<char>& content) {
  const Lock lock(mutex());
  std::memcpy(fill_view, content.data(), content.size());
  std::memset(fill_view + content.size(), kPoison, memory().taken() - content.size());
}

CardView card_view_in_use() {
  const Lock lock(mutex());
  constexpr std::size_t kNext = std::size_t{64} << 20;
  return {card_view, std::min(memory().taken() + kNext, kRange)};
}

std::int64_t used_bytes(int card) {
  const Lock lock(mutex());
  return memory().use(card).now;
}
std::int64_t peak_bytes(int card) {
  const Lock lock(mutex());
  return memory().use(card).peak;
}
void reset_peak(int card) {
  const Lock lock(mutex());
  memory().use(card).peak = memory().use(card).now;
}

}  // namespace lorikeet::card
