#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "base/error.h"
#include "comm/rendezvous.h"

namespace lorikeet::test {

inline const std::string kSecret = "a secret of more than sixteen characters";

/// A port of the loopback address that is free now.
inline int free_port() { return comm::listen_on("127.0.0.1", 0).port; }

/// What a launcher got from a rendezvous: a meeting, or an error.
struct Outcome {
  std::optional<comm::Meeting> meeting;
  std::string error;
  ErrorKind kind = ErrorKind::kRunFailed;
  double seconds = 0;
};

inline comm::NodeOptions node_options(int node, int nodes, int port, double timeout_seconds = 10) {
  return {.nodes = nodes,
          .node = node,
          .host = "127.0.0.1",
          .port = port,
          .secret = kSecret,
          .timeout_seconds = timeout_seconds};
}

/// A launcher that meets the others, in a thread.
inline std::future<Outcome> meet(const comm::NodeOptions& options, int processes = 1,
                                 const comm::Interruption& interruption = {}) {
  return std::async(std::launch::async, [=] {
    Outcome outcome;
    const auto begin = std::chrono::steady_clock::now();
    try {
      outcome.meeting = options.node == 0 ? comm::host_meeting(options, processes, interruption)
                                          : comm::join_meeting(options, processes, interruption);
    } catch (const Error& error) {
      outcome.error = error.what();
      outcome.kind = error.kind();
    }
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return outcome;
  });
}

}  // namespace lorikeet::test
