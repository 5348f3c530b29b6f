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

namespace lorikeet::comm {
namespace {

// The first collective is the one in which all ranks meet: it is quick, or something is wrong.
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

BoardSlot Board::read(int local_rank) const {
  BoardSlot copy = slots_[local_rank];
  copy.phase[sizeof(copy.phase) - 1] = '\0';
  copy.error[sizeof(copy.error) - 1] = '\0';
  return copy;
}

BoardWriter::BoardWriter(int local_rank, int local_size, std::uint64_t watchdog_seconds)
    : local_rank_(local_rank), watchdog_seconds_(watchdog_seconds) {
  const char* text = std::getenv("LORIKEET_BOARD_FD");
  if (text == nullptr) return;
  int descriptor = -1;
  std::from_chars(text, text + std::strlen(text), descriptor);
  board_ = std::make_unique<Board>(descriptor, local_size);
}

BoardWriter::~BoardWriter() = default;

void BoardWriter::phase(const std::string& name) {
  if (board_) copy_text(name, board_->slot(local_rank_).phase, sizeof(BoardSlot::phase));
}

void BoardWriter::failed(const std::string& error, int exit_code, bool consequence) {
  if (!board_) return;
  volatile BoardSlot& slot = board_->slot(local_rank_);
  slot.consequence = consequence ? 1 : 0;
  slot.exit_code = static_cast<std::uint8_t>(exit_code);
  copy_text(error, slot.error, sizeof(BoardSlot::error));
}

void BoardWriter::begin(Collective collective, std::uint64_t sequence) {
  if (!board_) return;
  volatile BoardSlot& slot = board_->slot(local_rank_);
  slot.collective = static_cast<std::uint8_t>(collective);
  slot.sequence = sequence;
}

void BoardWriter::waits(std::uint64_t sequence) {
  if (!board_) return;
  volatile BoardSlot& slot = board_->slot(local_rank_);
  slot.since_ns = now_ns();
  slot.limit_seconds = sequence == 1 ? std::min(watchdog_seconds_, kFirstLimitSeconds) : watchdog_seconds_;
  slot.in_collective = 1;
}

void BoardWriter::end() {
  if (board_) board_->slot(local_rank_).in_collective = 0;
}

}  // namespace lorikeet::comm
