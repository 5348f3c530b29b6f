#include "ops/dry_run.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "ops/block_pool.h"
#include "ops/host_transfers.h"

namespace lorikeet::ops {
namespace {

constexpr std::size_t kCudaAlignment = 512;  // of libtorch's caching allocator

// Addresses of blocks that aren't there: none twice.
class NoMemory final : public BlockPool::Source {
 public:
  void* map(std::size_t bytes, std::size_t /*asked*/) override {
    next_ += bytes;
    return reinterpret_cast<void*>(next_);  // NOLINT(performance-no-int-to-ptr): only compared
  }
  void unmap(void* /*block*/, std::size_t /*bytes*/) override {}

 private:
  std::uintptr_t next_ = 0;
};

}  // namespace

std::int64_t DryMoment::total() const { return std::accumulate(parts.begin(), parts.end(), unused); }

struct Allocation;

struct DryRun::State {
  explicit State(const DryTarget& of) : target(of) {}

  Allocation* take(std::size_t bytes, const std::shared_ptr<State>& self);
  void give_back(Allocation* allocation);
  void update();

  DryTarget target;
  std::size_t others = 0;  // the part of those that have none
  std::unordered_set<Allocation*> unassigned;
  NoMemory no_memory;
  BlockPool pool{no_memory};
  std::int64_t outside_pool = 0;
  DryMoment now, peak;
  std::int64_t most_used = 0, most_held = 0;
  std::int64_t host = 0, host_peak = 0, host_bytes = 0;
};

// The memory of one tensor.
struct Allocation {
  std::shared_ptr<DryRun::State> state;  // until the last tensor is gone
  std::int64_t bytes;
  void* block;  // in the pool, or nullptr
  std::optional<std::size_t> part;
  bool on_host = false;
};

namespace {

thread_local std::shared_ptr<DryRun::State> current;
thread_local bool makes_host_memory = false;

class MetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!current || bytes == 0) return {nullptr, at::Device(at::kMeta)};
    return {nullptr, current->take(bytes, current), &release, at::Device(at::kMeta)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override {}

 private:
  static void release(void* context) {
    const std::unique_ptr<Allocation> allocation(static_cast<Allocation*>(context));
    allocation->state->give_back(allocation.get());
  }
};

void install_meta_allocator() {
  static std::once_flag once;
  static auto* const allocator = new MetaAllocator;  // outlives every tensor
  std::call_once(once, [] { c10::SetAllocator(at::kMeta, allocator, /*priority=*/100); });
}

}  // namespace

Allocation* DryRun::State::take(std::size_t bytes, const std::shared_ptr<State>& self) {
  auto allocation = std::make_unique<Allocation>(Allocation{self, 0, nullptr, std::nullopt});
  const bool cpu = target.device == at::kCPU;
  if (!cpu && makes_host_memory) {
    allocation->bytes = host_memory_bytes(static_cast<std::int64_t>(bytes), target.device);
    allocation->on_host = true;
    host += allocation->bytes;
    host_peak = std::max(host_peak, host);
    host_bytes += static_cast<std::int64_t>(bytes);
    return allocation.release();
  }
  if (!cpu) bytes = (bytes + kCudaAlignment - 1) / kCudaAlignment * kCudaAlignment;
  allocation->bytes = static_cast<std::int64_t>(bytes);
  if (cpu && bytes >= kBlockRules.least_bytes) {
    allocation->block = pool.take(bytes);
  } else {
    outside_pool += allocation->bytes;
  }
  now.parts.at(others) += allocation->bytes;
  unassigned.insert(allocation.get());
  update();
  return allocation.release();
}

void DryRun::State::give_back(Allocation* allocation) {
  if (allocation->on_host) {
    host -= allocation->bytes;
    return;
  }
  now.parts.at(allocation->part.value_or(others)) -= allocation->bytes;
  if (!allocation->part) unassigned.erase(allocation);
  if (allocation->block != nullptr) {
    pool.give_back(allocation->block);
  } else {
    outside_pool -= allocation->bytes;
  }
  update();
}

void DryRun::State::update() {
  const std::int64_t held = outside_pool + static_cast<std::int64_t>(pool.memory().resident);
  now.unused = 0;
  const std::int64_t used = now.total();
  now.unused = held - used;
  most_held = std::max(most_held, held);
  if (used > most_used) {
    most_used = used;
    peak = now;
  }
}

DryRun::DryRun(const DryTarget& target) : state_(std::make_shared<State>(target)) {
  TORCH_CHECK(current == nullptr, "one dry run at a time");
  install_meta_allocator();
  current = state_;
}

DryRun::~DryRun() { current.reset(); }

void DryRun::assign(std::size_t part) {
  for (Allocation* allocation : state_->unassigned) {
    state_->now.parts.at(state_->others) -= allocation->bytes;
    state_->now.parts.at(part) += allocation->bytes;
    allocation->part = part;
  }
  state_->unassigned.clear();
}

void DryRun::count_others_as(std::size_t part) {
  std::int64_t bytes = 0;
  for (const Allocation* allocation : state_->unassigned) bytes += allocation->bytes;
  state_->now.parts.at(state_->others) -= bytes;
  state_->now.parts.at(part) += bytes;
  state_->others = part;
}

const DryMoment& DryRun::now() const { return state_->now; }
const DryMoment& DryRun::peak() const { return state_->peak; }
std::int64_t DryRun::most_held() const { return state_->most_held; }
std::int64_t DryRun::host_peak() const { return state_->host_peak; }
std::int64_t DryRun::host_bytes() const { return state_->host_bytes; }

DryHostMemory::DryHostMemory() { makes_host_memory = true; }
DryHostMemory::~DryHostMemory() { makes_host_memory = false; }

at::DeviceType kernels_of(const at::Tensor& tensor) {
  const at::DeviceType device = tensor.device().type();
  return device == at::kMeta && current ? current->target.device : device;
}

const DryTarget* dry_target() { return current ? &current->target : nullptr; }

}  // namespace lorikeet::ops
