// A jump to another fiber isn't the mistake that the fortified longjmp looks for.
#undef _FORTIFY_SOURCE
#include "card/block_threads.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "card/host_kernel.h"

namespace lorikeet::card {
namespace {

constexpr unsigned kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{64} << 10, kGuardBytes = 4096;
constexpr std::size_t kCopyBytes = 16;
constexpr std::size_t kMostShared = std::size_t{48} << 10, kSharedAlignment = 128;

enum class State { kReady, kAtBarrier, kAtWarpOperation, kEnded };

struct Copy {
  void* to;
  const void* from;  // nullptr: zeros
  int group;
};

// It lives as long as nothing fails, and runs one thread of every block.
struct Fiber {
  Fiber() = default;
  ~Fiber() {
    if (stack != nullptr) munmap(stack, kStackBytes);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void* stack = nullptr;
  ucontext_t start{};
  jmp_buf place_in_code{};
  bool started = false;
  uint3 index{};
  unsigned number = 0;  // in the block
  State state = State::kEnded;
  Place place;
  unsigned mask = 0;
  std::uint64_t bits = 0;
  std::array<std::uint64_t, kWarp> received{};
  std::vector<Copy> copies;  // under way
  int groups = 0;            // of copies, that have ended
};

struct FreeShared {
  void operator()(void* memory) const { ::operator delete(memory, std::align_val_t(kSharedAlignment)); }
};

// The operations of a whole warp, which are nearly all: what its lanes give is gathered as they arrive.
struct WholeWarp {
  unsigned arrived = 0;
  bool apart = false;  // lanes wait at different operations: none is ever whole
  int line = 0;
  // A lane reads what one operation gathered while others may give to the next.
  std::array<std::array<std::uint64_t, kWarp>, 2> bits{};
  std::size_t turn = 0;
  unsigned ended = 0;  // lanes
};

struct Machine {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<WholeWarp> warps;
  unsigned threads = 0;  // of the block; it may have less than there are fibers
  Fiber* running = nullptr;
  jmp_buf scheduler{};
  const std::function<void()>* body = nullptr;
  std::exception_ptr error;
  std::map<const void*, std::unique_ptr<void, FreeShared>> shared;  // by site
  std::size_t shared_bytes = 0;
};

// One: launches hold the fake card's lock.
Machine& machine() {
  static Machine one;
  return one;
}

std::string text_of(Place place) {
  const std::string file = place.file;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(place.line);
}

std::string text_of(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) +
         ")";
}

Error error_at(Place place, const std::string& what) {
  return Error("[" + text_of(place) + "] block " + text_of(kernel_index.block) + ": " + what,
               ErrorKind::kRunFailed);
}

// NOLINTBEGIN(cert-err52-cpp): no frame with a destructor is left for good by these jumps
void switch_to_scheduler(Fiber& fiber) {
  if (_setjmp(fiber.place_in_code) == 0) _longjmp(machine().scheduler, 1);
}

void run_fiber() {
  Machine& m = machine();
  Fiber& fiber = *m.running;
  for (;;) {
    try {
      (*m.body)();
    } catch (...) {
      m.error = std::current_exception();
    }
    fiber.state = State::kEnded;
    ++m.warps[fiber.number / kWarp].ended;
    switch_to_scheduler(fiber);
  }
}

void switch_to(Fiber& fiber) {
  Machine& m = machine();
  m.running = &fiber;
  kernel_index.thread = fiber.index;
  if (_setjmp(m.scheduler) == 0) {
    if (fiber.started) _longjmp(fiber.place_in_code, 1);
    fiber.started = true;
    setcontext(&fiber.start);
  }
  m.running = nullptr;
}
// NOLINTEND(cert-err52-cpp)

std::unique_ptr<Fiber> make_fiber(unsigned number) {
  auto fiber = std::make_unique<Fiber>();
  fiber->number = number;
  void* stack =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0 || getcontext(&fiber->start) != 0) {
    throw Error("[fake card] expected memory for the stacks of a block's threads, got none",
                ErrorKind::kEnvironment);
  }
  fiber->stack = stack;
  fiber->start.uc_stack.ss_sp = stack;
  fiber->start.uc_stack.ss_size = kStackBytes;
  fiber->start.uc_link = nullptr;
  makecontext(&fiber->start, &run_fiber, 0);
  return fiber;
}

// Runs a warp until none of its threads can go on.
void run_warp(unsigned first) {
  Machine& m = machine();
  const unsigned end = std::min(first + kWarp, m.threads);
  for (bool moved = true; moved;) {
    moved = false;
    for (unsigned i = first; i < end; ++i) {
      if (m.fibers[i]->state != State::kReady) continue;
      switch_to(*m.fibers[i]);
      if (m.error) std::rethrow_exception(m.error);
      moved = true;
    }
  }
}

// Nobody can go on. Threads that wait at one barrier may, when the whole block does; else the block hangs on
// a card, or does what CUDA leaves undefined.
void open_barrier() {
  Machine& m = machine();
  unsigned ended = 0;
  bool whole = true;
  std::map<std::string, unsigned> waiting;
  Place place;
  for (unsigned i = 0; i < m.threads; ++i) {
    const Fiber& fiber = *m.fibers[i];
    whole = whole && fiber.state == State::kAtBarrier;
    if (fiber.state == State::kEnded) {
      ++ended;
      continue;
    }
    place = fiber.place;
    const char* what =
        fiber.state == State::kAtBarrier ? "__syncthreads() of line " : "a warp operation of line ";
    ++waiting[what + std::to_string(place.line)];
  }
  if (!whole || waiting.size() != 1) {
    std::string where = std::to_string(ended) + " threads have ended";
    for (const auto& [what, count] : waiting) where += ", " + std::to_string(count) + " wait in " + what;
    throw error_at(place, "expected all its threads at one barrier, got a block that diverges: " + where);
  }
  for (unsigned i = 0; i < m.threads; ++i) m.fibers[i]->state = State::kReady;
}

bool all_ended() {
  const Machine& m = machine();
  for (unsigned i = 0; i < m.threads; ++i) {
    if (m.fibers[i]->state != State::kEnded) return false;
  }
  return true;
}

void run_block(const dim3& size) {
  Machine& m = machine();
  m.warps.assign((m.threads + kWarp - 1) / kWarp, {});
  for (unsigned i = 0; i < m.threads; ++i) {
    if (i == m.fibers.size()) m.fibers.push_back(make_fiber(i));
    Fiber& fiber = *m.fibers[i];
    fiber.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    fiber.state = State::kReady;
    fiber.copies.clear();
    fiber.groups = 0;
  }
  for (;;) {
    for (unsigned first = 0; first < m.threads; first += kWarp) run_warp(first);
    if (all_ended()) return;
    open_barrier();
  }
}

}  // namespace

void run_fibers(const dim3& size, const std::function<void()>& thread) {
  Machine& m = machine();
  m.threads = size.x * size.y * size.z;
  m.body = &thread;
  m.shared.clear();
  m.shared_bytes = 0;
  try {
    run_block(size);
  } catch (...) {
    m.error = nullptr;
    m.fibers.clear();  // some are inside a kernel
    throw;
  }
}

unsigned lane() { return machine().running->number % kWarp; }

void fail_thread(const char* what, Place place) {
  throw error_at(place, "thread " + text_of(kernel_index.thread) + ": " + what);
}

void wait_for_block(Place place) {
  Fiber& fiber = *machine().running;
  fiber.place = place;
  fiber.state = State::kAtBarrier;
  switch_to_scheduler(fiber);
}

namespace {

const std::uint64_t* exchange_in_whole_warp(Fiber& fiber, unsigned lanes, std::uint64_t bits, Place place) {
  Machine& m = machine();
  const unsigned first = fiber.number / kWarp * kWarp;
  WholeWarp& warp = m.warps[fiber.number / kWarp];
  if (warp.ended > 0) fail_thread("a warp operation waits for a lane that has ended", place);
  fiber.place = place;
  fiber.mask = ~0U;
  fiber.state = State::kAtWarpOperation;
  if (warp.arrived == 0) warp.line = place.line;
  warp.apart = warp.apart || warp.line != place.line;
  const std::uint64_t* gathered = warp.bits[warp.turn].data();
  warp.bits[warp.turn][fiber.number - first] = bits;
  ++warp.arrived;
  if (warp.arrived == lanes && !warp.apart) {
    warp.arrived = 0;
    warp.turn = 1 - warp.turn;
    for (unsigned i = 0; i < lanes; ++i) m.fibers[first + i]->state = State::kReady;
  }
  while (fiber.state != State::kReady) switch_to_scheduler(fiber);
  return gathered;
}

}  // namespace

const std::uint64_t* exchange(unsigned mask, std::uint64_t bits, Place place) {
  Machine& m = machine();
  if (m.running == nullptr)
    throw std::logic_error("a warp operation of threads that run one by one: cuda_to_cpp.py has to find it");
  Fiber& fiber = *m.running;
  const unsigned first = fiber.number / kWarp * kWarp, lanes = std::min(kWarp, m.threads - first);
  if ((mask >> fiber.number % kWarp & 1U) == 0)
    fail_thread("the mask of a warp operation leaves out its caller", place);
  if (lanes < kWarp) mask &= (1U << lanes) - 1;  // lanes that were never there
  if (mask == (lanes < kWarp ? (1U << lanes) - 1 : ~0U))
    return exchange_in_whole_warp(fiber, lanes, bits, place);
  fiber.place = place;
  fiber.mask = mask;
  fiber.bits = bits;
  fiber.state = State::kAtWarpOperation;
  bool all = true;
  for (unsigned i = 0; i < lanes; ++i) {
    if ((mask >> i & 1U) == 0) continue;
    const Fiber& other = *m.fibers[first + i];
    if (other.state == State::kEnded) fail_thread("a warp operation waits for a lane that has ended", place);
    all =
        all && other.state == State::kAtWarpOperation && other.mask == mask && other.place.line == place.line;
  }
  if (all) {
    for (unsigned i = 0; i < lanes; ++i) {
      if ((mask >> i & 1U) == 0) continue;
      Fiber& other = *m.fibers[first + i];
      for (unsigned j = 0; j < lanes; ++j) other.received[j] = m.fibers[first + j]->bits;
      other.state = State::kReady;
    }
  }
  while (fiber.state != State::kReady) switch_to_scheduler(fiber);
  return fiber.received.data();
}

void begin_copy(void* shared, const void* from, bool is_there) {
  Fiber& fiber = *machine().running;
  for (const void* side : {static_cast<const void*>(shared), from}) {
    if (reinterpret_cast<std::uintptr_t>(side) % kCopyBytes != 0)
      fail_thread("a copy begins between multiples of 16 bytes", Place::here());
  }
  __builtin_memset(shared, 0xFF, kCopyBytes);
  fiber.copies.push_back({shared, is_there ? from : nullptr, fiber.groups});
}

void end_copies() { ++machine().running->groups; }

void wait_for_copies(int groups) {
  Fiber& fiber = *machine().running;
  std::erase_if(fiber.copies, [&](const Copy& copy) {
    if (copy.group >= fiber.groups - groups) return false;
    if (copy.from != nullptr) {
      __builtin_memcpy(copy.to, copy.from, kCopyBytes);
    } else {
      __builtin_memset(copy.to, 0, kCopyBytes);
    }
    return true;
  });
}

void* shared_memory(const void* site, std::size_t bytes) {
  Machine& m = machine();
  auto& memory = m.shared[site];
  if (memory) return memory.get();
  m.shared_bytes += bytes;
  if (m.shared_bytes > kMostShared) {
    throw Error("[fake card] expected at most " + std::to_string(kMostShared) +
                    " bytes of shared memory a block, got " + std::to_string(m.shared_bytes),
                ErrorKind::kRunFailed);
  }
  memory.reset(::operator new(bytes, std::align_val_t(kSharedAlignment)));
  __builtin_memset(memory.get(), 0xFF, bytes);  // NaN in every floating type
  return memory.get();
}

}  // namespace lorikeet::card

namespace lorikeet::ops::device {

void fail_access(const void* at, std::size_t bytes);
void fail_access(const void* /*at*/, std::size_t bytes) {
  card::fail_thread(("an access begins between multiples of its " + std::to_string(bytes) + " bytes").c_str(),
                    card::Place::here());
}

}  // namespace lorikeet::ops::device
