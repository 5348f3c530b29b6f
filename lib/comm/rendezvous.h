#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/version.h"
#include "comm/line_channel.h"
#include "comm/socket.h"

namespace lorikeet::comm {

/// Which of several launchers this is, and how it finds the others. With one node there is nothing to find.
struct NodeOptions {
  int nodes = 1;
  int node = 0;
  std::string host;  ///< an address of node 0, or its name
  int port = 0;
  /// What a launcher has to know to be let in; none: anyone is.
  std::optional<std::string> secret;
  double timeout_seconds = 120;
  std::string version = std::string(kVersion);
};

/// Lets a wait end early: `descriptor` (or -1) is polled with the sockets, and `asked` says whether to stop.
struct Interruption {
  int descriptor = -1;
  std::function<bool()> asked;
};

/// What the launchers of a run have agreed on, and the connections between them.
struct Meeting {
  int node = 0;
  std::vector<int> processes;  ///< of each node; ranks are numbered node after node
  std::string store_host;      ///< where the ranks' store listens, in numbers
  int store_port = 0;
  Listener store;                   ///< node 0's, for rank 0
  std::vector<LineChannel> others;  ///< node 0: by node, that of node 0 empty; else: node 0's alone
};

/// Node 0's part: listens at host:port alone until a launcher of every other node has joined. Challenges each
/// that connects, and lets in who knows the secret. A stranger, or any number of them, that says nothing, or
/// rubbish, delays nobody. Throws Error on every launcher that has joined, with the same text: kUsage when
/// one has another version or number of nodes, or a node's number that is taken or out of range; kEnvironment
/// when the address isn't this machine's, the port is taken, or the time is up (kUsage when a connection
/// without the right secret was what came); kInterrupted.
Meeting host_meeting(const NodeOptions& options, int processes, const Interruption& interruption);

/// The other nodes' part: tries until node 0 answers, then waits until all are there. Throws Error as above.
Meeting join_meeting(const NodeOptions& options, int processes, const Interruption& interruption);

/// The secret of `file`, or else of the environment variable LORIKEET_SECRET; none when neither is given.
/// Blanks at its end don't count. Throws Error (kUsage) for a file that others than its owner may read, and
/// for a secret that is too short.
std::optional<std::string> read_secret(const std::optional<std::string>& file);

}  // namespace lorikeet::comm
