#pragma once

#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace lorikeet::comm {

/// Where a rank stands, in memory that its launcher reads even when the rank hangs or is gone.
struct BoardSlot {
  char phase[32];               ///< "start", "read model", "training", ...
  char error[512];              ///< what it failed with; empty while it hasn't
  std::uint8_t consequence;     ///< 1: it failed because another rank was lost
  std::uint8_t in_collective;   ///< 1 while it waits for a collective
  std::uint8_t collective;      ///< a Collective: the latest that began
  std::uint8_t exit_code;       ///< what it is about to end with, having failed
  std::uint64_t sequence;       ///< its number, from 1
  std::uint64_t since_ns;       ///< CLOCK_MONOTONIC when it began to wait
  std::uint64_t limit_seconds;  ///< how long that may last; 0: for ever
};

/// The slots of one machine's ranks, shared between launcher and ranks: an anonymous file, handed down as a
/// descriptor.
class Board {
 public:
  /// A new board of `ranks` zeroed slots.
  explicit Board(int ranks);
  /// The one behind a descriptor that a launcher handed down. Throws Error when it isn't one.
  Board(int descriptor, int ranks);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int descriptor() const { return descriptor_; }
  /// Written by its rank, read by anyone; a torn read shows a wrong moment, nothing worse.
  volatile BoardSlot& slot(int local_rank) { return slots_[local_rank]; }
  /// A copy, with terminated strings.
  BoardSlot read(int local_rank) const;

 private:
  void map();

  int descriptor_;
  int ranks_;
  bool owned_;
  BoardSlot* slots_ = nullptr;
};

/// One rank's entries. Without a launcher of ours nothing is written.
class BoardWriter : public Observer {
 public:
  /// A writer to nowhere.
  BoardWriter() = default;
  /// The slot that `lorikeet run` gave this process by LORIKEET_BOARD_FD, or a writer to nowhere.
  BoardWriter(int local_rank, int local_size, std::uint64_t watchdog_seconds);
  ~BoardWriter() override;

  void phase(const std::string& name);
  void failed(const std::string& error, int exit_code, bool consequence);
  void begin(Collective collective, std::uint64_t sequence) override;
  void waits(std::uint64_t sequence) override;
  void end() override;

 private:
  std::unique_ptr<Board> board_;
  int local_rank_ = 0;
  std::uint64_t watchdog_seconds_ = 0;
};

}  // namespace lorikeet::comm
