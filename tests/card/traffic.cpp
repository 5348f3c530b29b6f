#include "card/traffic.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"
#include "card/memory.h"
#include "card/report.h"

namespace lorikeet::card {
namespace {

constexpr unsigned char kRead = 1, kWritten = 2;

// The signal handler reads it in any thread of a launch; it changes while none runs.
struct Tracked {
  char* begin = nullptr;
  std::size_t pages = 0;
  std::size_t page_bytes = 0;
  std::unique_ptr<std::atomic<unsigned char>[]> touched;  // by page
  std::size_t room = 0;                                   // of `touched`
  std::atomic<bool> active = false;
};
Tracked tracked;
bool counts = false;

void protect(char* begin, std::size_t bytes, int protection) {
  if (bytes > 0 && mprotect(begin, bytes, protection) != 0)
    throw Error("fake card: can't protect its memory");
}

void begin_tracking() {
  const CardView view = card_view_in_use();
  tracked.page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  tracked.begin = view.data;
  tracked.pages = (view.bytes + tracked.page_bytes - 1) / tracked.page_bytes;
  if (tracked.pages > tracked.room) {
    tracked.touched = std::make_unique<std::atomic<unsigned char>[]>(tracked.pages);
    tracked.room = tracked.pages;
  }
  for (std::size_t page = 0; page < tracked.pages; ++page) tracked.touched[page] = 0;
  tracked.active = true;
  protect(tracked.begin, tracked.pages * tracked.page_bytes, PROT_NONE);
}

Traffic end_tracking() {
  protect(tracked.begin, tracked.pages * tracked.page_bytes, PROT_READ | PROT_WRITE);
  tracked.active = false;
  Traffic traffic;
  const auto bytes = static_cast<std::int64_t>(tracked.page_bytes);
  for (std::size_t page = 0; page < tracked.pages; ++page) {
    if ((tracked.touched[page] & kRead) != 0) traffic.read += bytes;
    if ((tracked.touched[page] & kWritten) != 0) traffic.written += bytes;
  }
  return traffic;
}

}  // namespace

#ifdef __x86_64__
bool traffic_is_countable() { return true; }

bool note_fault(void* address, const void* signal_context) {
  if (!tracked.active) return false;
  const auto offset = static_cast<std::size_t>(static_cast<char*>(address) - tracked.begin);
  if (offset >= tracked.pages * tracked.page_bytes) return false;
  constexpr greg_t kWriting = 2;  // of a page fault's error code
  const auto* context = static_cast<const ucontext_t*>(signal_context);
  const bool writes = (context->uc_mcontext.gregs[REG_ERR] & kWriting) != 0;
  const std::size_t page = offset / tracked.page_bytes;
  const unsigned char before = tracked.touched[page].fetch_or(writes ? kWritten : kRead);
  const int protection = writes || (before & kWritten) != 0 ? PROT_READ | PROT_WRITE : PROT_READ;
  return mprotect(tracked.begin + page * tracked.page_bytes, tracked.page_bytes, protection) == 0;
}
#else
bool traffic_is_countable() { return false; }
bool note_fault(void*, const void*) { return false; }
#endif

void count_traffic(bool on) {
  const Lock lock(mutex());
  counts = on && traffic_is_countable();
  if (counts) report_host_access();
}

LaunchTraffic::LaunchTraffic(std::string name) : name_(std::move(name)), tracks_(counts && !tracked.active) {
  if (tracks_) begin_tracking();
}

LaunchTraffic::~LaunchTraffic() {
  if (!tracks_) return;
  const Traffic traffic = end_tracking();
  if (traffic.read == 0 && traffic.written == 0) return;
  Traffic& total = report().traffic[name_];
  total.read += traffic.read;
  total.written += traffic.written;
}

}  // namespace lorikeet::card
