#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/line_channel.h"
#include "comm/verdict.h"

namespace lorikeet::comm {

/// What launchers tell each other while their ranks run. All goes through node 0.
struct Message {
  enum class Kind {
    kInterrupt,    ///< the user wants the run to save and end; `now`: to end at once
    kDown,         ///< a rank or node has failed: end the ranks; `now`: without a moment's grace
    kHang,         ///< to node 0: a rank waits for too long, as `text` says
    kAskStanding,  ///< from node 0: where do your ranks stand?
    kStanding,     ///< to node 0: `rows`, one a rank
    kEnd,          ///< to node 0: my ranks have ended, with this `verdict`
    kOver,         ///< from node 0: all ranks of all nodes have, with this `verdict`
    kLost          ///< never sent: the connection has ended, for the reason in `text`
  };
  Kind kind = Kind::kDown;
  bool now = false;
  std::string text;
  std::vector<std::string> rows;
  Verdict verdict;
};

/// One JSON line.
std::string encode(const Message& message);
/// nullopt when the line isn't a message.
std::optional<Message> read_message(std::string_view line);

/// The connections between the launchers of several machines: node 0 has one to each, the others one to it.
/// It ends within seconds when the other machine or the network is gone.
class NodeLink {
 public:
  struct Received {
    int node;
    Message message;
  };

  /// `others` by node on node 0 (its own empty), else node 0's alone.
  explicit NodeLink(std::vector<LineChannel> others);

  void add_to(std::vector<pollfd>& watched) const;
  /// All that has come; an end of a connection is a last message, kLost, once. What isn't a message ends the
  /// connection too.
  std::vector<Received> receive();

  void send(int node, const Message& message);
  /// To all, but for `except`.
  void send_all(const Message& message, int except = -1);
  /// Returns when all is sent, or `limit` is over.
  void flush(std::chrono::milliseconds limit);

 private:
  std::vector<LineChannel> others_;
  std::vector<bool> told_lost_;
};

}  // namespace lorikeet::comm
