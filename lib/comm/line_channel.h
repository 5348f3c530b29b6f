#pragma once

#include <poll.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"

namespace lorikeet::comm {

/// Time in which a connection that has to live is given up when nothing comes back.
inline constexpr int kLostSeconds = 6;

/// Lines over a connected socket that never blocks, with bounded buffers: whatever the other side does, or
/// leaves undone, costs this one neither time nor memory. Once it has failed it stays closed.
class LineChannel {
 public:
  LineChannel() = default;
  /// A line from the other side longer than `longest_line` bytes ends the connection.
  LineChannel(UniqueFd socket, std::size_t longest_line);

  bool open() const { return static_cast<bool>(socket_); }
  /// Why it is no longer open: "the connection was closed", "Connection timed out", ...
  const std::string& end_reason() const { return end_reason_; }
  /// The other side's address, "10.0.0.2".
  const std::string& peer() const { return peer_; }
  /// What to poll for.
  pollfd watch() const;

  /// From now on ends within kLostSeconds when the other machine, or the network between, is gone.
  void end_when_lost();
  void set_longest_line(std::size_t bytes) { longest_line_ = bytes; }
  /// Reads what has come, up to a line's length beyond what is there. Lines that came before the end can
  /// still be taken.
  void receive();
  /// The next whole line, without its end.
  std::optional<std::string> next_line();

  /// Sends a line, as far as that goes at once; flush() sends the rest.
  void send(std::string_view line);
  void flush();
  bool all_sent() const { return unsent_.empty(); }
  void close(const std::string& reason);

 private:
  UniqueFd socket_;
  std::size_t longest_line_ = 0;
  std::string received_, unsent_, end_reason_, peer_;
};

}  // namespace lorikeet::comm
