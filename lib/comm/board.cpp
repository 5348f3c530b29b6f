#include "comm/board.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::comm {
namespace {

// The first collective comes when all ranks have met and compute nothing: it is quick, or something is wrong.
constexpr std::uint64_t kFirstLimitSeconds = 60;

std::uint64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

void copy_text(const std::string& text, volatile char* to, std::size_t size) {
  const std::size_t length = std::min(text.size(), size - 1);
  for (std::size_t i = 0; i < length; ++i) to[i] = text[i];
  to[length] = '\0';
}

}  // namespace

std::string describe(const BoardSlot& slot) {
  std::string text = escape_control(slot.phase);
  if (slot.sequence == 0) return text + ", before the first collective";
  return text + (slot.in_collective != 0 ? ", in " : ", behind ") +
         name_of(static_cast<Collective>(slot.collective)) + " " + std::to_string(slot.sequence);
}

std::optional<int> overdue_seconds(const BoardSlot& slot) {
  const std::uint64_t now = now_ns();
  if (slot.in_collective == 0 || slot.limit_seconds == 0 || now < slot.since_ns) return std::nullopt;
  const std::uint64_t seconds = (now - slot.since_ns) / 1'000'000'000;
  if (seconds < slot.limit_seconds) return std::nullopt;
  return static_cast<int>(seconds);
}

std::string hang_text(const std::string& rank, const BoardSlot& slot, int seconds) {
  return rank + " has waited " + std::to_string(seconds) + " s " +
         (slot.sequence == 0 ? "to join the group" : "in a collective") + " (distributed.watchdog_seconds)";
}

Board::Board(int ranks) : descriptor_(memfd_create("lorikeet-board", 0)), ranks_(ranks), owned_(true) {
  const std::size_t bytes = sizeof(BoardSlot) * static_cast<std::size_t>(ranks);
  if (descriptor_ < 0 || ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) {
    throw Error(std::string("[launch] can't make shared memory: ") + std::strerror(errno),
                ErrorKind::kEnvironment);
  }
  map();
}

Board::Board(int descriptor, int ranks) : descriptor_(descriptor), ranks_(ranks), owned_(false) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0 ||
      status.st_size != static_cast<off_t>(sizeof(BoardSlot) * static_cast<std::size_t>(ranks))) {
    throw Error("[launch: LORIKEET_BOARD_FD] is not a board of " + std::to_string(ranks) +
                " ranks; it is set by lorikeet run alone");
  }
  map();
}

void Board::map() {
  void* memory = mmap(nullptr, sizeof(BoardSlot) * static_cast<std::size_t>(ranks_), PROT_READ | PROT_WRITE,
                      MAP_SHARED, descriptor_, 0);
  if (memory == MAP_FAILED) {
    throw Error(std::string("[launch] can't map shared memory: ") + std::strerror(errno),
                ErrorKind::kEnvironment);
  }
  slots_ = static_cast<BoardSlot*>(memory);
}

Board::~Board() {
  if (slots_ != nullptr) munmap(slots_, sizeof(BoardSlot) * static_cast<std::size_t>(ranks_));
  if (owned_ && descriptor_ >= 0) close(descriptor_);
}

BoardSlot Board::read(int rank) const {
  BoardSlot copy = slots_[rank];
  copy.phase[sizeof(copy.phase) - 1] = '\0';
  copy.error[sizeof(copy.error) - 1] = '\0';
  return copy;
}

BoardWriter::BoardWriter(int rank, int ranks, std::uint64_t watchdog_seconds)
    : watchdog_seconds_(watchdog_seconds) {
  const char* text = std::getenv("LORIKEET_BOARD_FD");
  if (text == nullptr || ranks == 1) {
    board_ = std::make_unique<Board>(1);
    return;
  }
  int descriptor = -1;
  std::from_chars(text, text + std::strlen(text), descriptor);
  board_ = std::make_unique<Board>(descriptor, ranks);
  index_ = rank;
}

void BoardWriter::phase(const std::string& name) {
  copy_text(name, board_->slot(index_).phase, sizeof(BoardSlot::phase));
}

void BoardWriter::failed(const std::string& error, int exit_code, bool consequence) {
  volatile BoardSlot& slot = board_->slot(index_);
  slot.consequence = consequence ? 1 : 0;
  slot.exit_code = static_cast<std::uint8_t>(exit_code);
  copy_text(error, slot.error, sizeof(BoardSlot::error));
}

void BoardWriter::begin(Collective collective, std::uint64_t sequence) {
  volatile BoardSlot& slot = board_->slot(index_);
  slot.collective = static_cast<std::uint8_t>(collective);
  slot.sequence = sequence;
}

void BoardWriter::waits(std::uint64_t sequence) {
  volatile BoardSlot& slot = board_->slot(index_);
  slot.since_ns = now_ns();
  slot.limit_seconds = sequence == 1 ? std::min(watchdog_seconds_, kFirstLimitSeconds) : watchdog_seconds_;
  slot.in_collective = 1;
}

void BoardWriter::end() { board_->slot(index_).in_collective = 0; }

}  // namespace lorikeet::comm
