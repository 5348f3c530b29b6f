#include "card/transfers.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "card/report.h"

namespace lorikeet::card {
namespace {

constexpr unsigned char kPoison = 0xFF;

struct Transfer {
  StreamKey stream;
  std::int64_t moment;
  char* host;
  bool to_host;
  std::vector<char> content;
};

std::vector<Transfer>& under_way() {
  static auto* const all = new std::vector<Transfer>;  // never destroyed: static tensors are freed later
  return *all;
}

std::map<const char*, std::size_t>& pinned_blocks() {
  static auto* const all = new std::map<const char*, std::size_t>;
  return *all;
}

void finish(const Transfer& transfer) {
  const auto bytes = transfer.content.size();
  if (!transfer.to_host) {
    if (std::memcmp(transfer.host, transfer.content.data(), bytes) != 0) {
      count_hazard("pinned memory was changed before its copy to the card was waited for");
    }
    return;
  }
  const bool untouched = std::all_of(transfer.host, transfer.host + bytes,
                                     [](char byte) { return static_cast<unsigned char>(byte) == kPoison; });
  if (!untouched) {
    count_hazard("pinned memory was changed before the copy from the card to it was waited for");
  }
  std::memcpy(transfer.host, transfer.content.data(), bytes);
}

template <typename Condition>
void finish_if(const Condition& condition) {
  const Lock lock(mutex());
  std::vector<Transfer> done, rest;
  for (Transfer& transfer : under_way()) {
    (condition(transfer) ? done : rest).push_back(std::move(transfer));
  }
  under_way() = std::move(rest);
  for (const Transfer& transfer : done) finish(transfer);
}

bool is_covered(const Transfer& transfer, const Clock& known) {
  const auto found = known.find(transfer.stream);
  return found != known.end() && found->second > transfer.moment;
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = std::malloc(std::max<std::size_t>(bytes, 1));
    const Lock lock(mutex());
    pinned_blocks()[static_cast<char*>(data)] = bytes;
    return {data, data, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void release(void* data) {
    const Lock lock(mutex());
    const auto* begin = static_cast<char*>(data);
    const char* end = begin + pinned_blocks()[begin];
    // libtorch keeps a block until the copies from it are done: freeing it early is right. What the card
    // copies to it would be lost.
    std::erase_if(under_way(), [&](const Transfer& transfer) {
      const bool inside = transfer.host >= begin && transfer.host < end;
      if (inside && transfer.to_host) {
        count_hazard("pinned memory was freed before the copy from the card to it was waited for");
      }
      return inside;
    });
    pinned_blocks().erase(begin);
    std::free(data);
  }
};

PinnedAllocator the_pinned_allocator;

}  // namespace

c10::Allocator& pinned_allocator() { return the_pinned_allocator; }

bool is_pinned(const void* data) {
  const Lock lock(mutex());
  const auto* at = static_cast<const char*>(data);
  auto found = pinned_blocks().upper_bound(at);
  if (found == pinned_blocks().begin()) return false;
  --found;
  return at < found->first + std::max<std::size_t>(found->second, 1);
}

void begin_upload(StreamKey stream, const void* host, std::size_t bytes) {
  const Lock lock(mutex());
  auto* begin = static_cast<char*>(const_cast<void*>(host));
  under_way().push_back({.stream = stream,
                         .moment = moment_of(stream),
                         .host = begin,
                         .to_host = false,
                         .content = {begin, begin + bytes}});
}

void begin_download(StreamKey stream, void* host, std::vector<char> content) {
  const Lock lock(mutex());
  std::memset(host, kPoison, content.size());
  under_way().push_back({.stream = stream,
                         .moment = moment_of(stream),
                         .host = static_cast<char*>(host),
                         .to_host = true,
                         .content = std::move(content)});
}

void read_downloads(StreamKey stream, const void* host, std::size_t bytes) {
  const Lock lock(mutex());
  const Clock known = known_after(stream);
  const auto* begin = static_cast<const char*>(host);
  const auto is_read = [&](const Transfer& transfer) {
    return transfer.to_host && transfer.host < begin + bytes &&
           transfer.host + transfer.content.size() > begin;
  };
  finish_if([&](const Transfer& transfer) { return is_read(transfer) && is_covered(transfer, known); });
  if (std::any_of(under_way().begin(), under_way().end(), is_read))
    count_hazard("pinned memory was copied to the card before the copy from the card to it was done");
}

void finish_transfers(const Clock& known) {
  finish_if([&](const Transfer& transfer) { return is_covered(transfer, known); });
}

void finish_all_transfers() {
  finish_if([](const Transfer&) { return true; });
}

}  // namespace lorikeet::card
