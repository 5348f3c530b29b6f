#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"

namespace lorikeet::comm {

/// The state of one rank, in shared memory: its launcher reads it even when the rank hangs or has died.
struct BoardSlot {
  char phase[32];               ///< "start", "read model", "training", ...
  char error[512];              ///< the error that it failed with; empty before that
  std::uint8_t consequence;     ///< 1: it failed because another rank was lost
  std::uint8_t in_collective;   ///< 1 while it waits for a collective
  std::uint8_t collective;      ///< a Collective: the latest that began
  std::uint8_t exit_code;       ///< the exit code that it is about to end with, having failed
  std::uint64_t sequence;       ///< the number of that collective, from 1
  std::uint64_t since_ns;       ///< CLOCK_MONOTONIC when the rank began to wait
  std::uint64_t limit_seconds;  ///< how long that wait may last; 0: for ever
};

/// "training, in all-reduce 7", "tokenise, before the first collective".
std::string describe(const BoardSlot& slot);
/// The seconds that a rank has waited in a collective, when that is longer than it may.
std::optional<int> overdue_seconds(const BoardSlot& slot);
/// "rank 2 has waited 61 s in a collective (distributed.watchdog_seconds)", or "to join the group". `rank` is
/// its name.
std::string hang_text(const std::string& rank, const BoardSlot& slot, int seconds);

/// The slots of the ranks of one machine, in an anonymous file that the launcher and its ranks share: the
/// ranks inherit its descriptor.
class Board {
 public:
  /// A new board of `ranks` zeroed slots.
  explicit Board(int ranks);
  /// The board behind an inherited descriptor. Throws Error when it isn't one.
  Board(int descriptor, int ranks);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int descriptor() const { return descriptor_; }
  /// Written by its rank, read by anyone. A read during a write may see a state that never was, nothing
  /// worse.
  volatile BoardSlot& slot(int rank) { return slots_[rank]; }
  /// A copy, with terminated strings.
  BoardSlot read(int rank) const;

 private:
  void map();

  int descriptor_;
  int ranks_;
  bool owned_;
  BoardSlot* slots_ = nullptr;
};

/// Writes one rank's slot: under `lorikeet run` that of the launcher's board (LORIKEET_BOARD_FD), else one of
/// its own.
class BoardWriter : public Observer {
 public:
  /// Throws Error when LORIKEET_BOARD_FD is no board of `ranks` slots.
  BoardWriter(int rank, int ranks, std::uint64_t watchdog_seconds);

  void phase(const std::string& name);
  void failed(const std::string& error, int exit_code, bool consequence);
  void begin(Collective collective, std::uint64_t sequence) override;
  void waits(std::uint64_t sequence) override;
  void end() override;

  BoardSlot read() const { return board_->read(index_); }

 private:
  std::unique_ptr<Board> board_;
  int index_ = 0;
  std::uint64_t watchdog_seconds_ = 0;
};

}  // namespace lorikeet::comm
