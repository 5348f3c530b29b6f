#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "config/settings.h"

namespace lorikeet::probe {

enum class ProbeKind { kMatmul, kTransfer, kPeerCopy, kAllReduce, kWrite };

/// What the table calls it: "matrix product", "host copies", "peer copy", "all-reduce", "disk write".
const char* name_of(ProbeKind kind);

/// What a child process is to measure. It travels on the child's command line.
struct ProbeRequest {
  ProbeKind kind = ProbeKind::kMatmul;
  int device = -1;  ///< CUDA's number; -1 is the CPU
  DType compute = DType::kBF16;
  config::Matmul matmul = config::Matmul::kFp32;
  std::vector<int> peers;  ///< for kPeerCopy: where to
  // for kAllReduce
  std::int64_t bytes = std::int64_t{4} << 20;  ///< of the sum
  int rank = 0, size = 1, port = 0;
  int listen_fd = -1;  ///< rank 0's
  double limit_seconds = 20;
  std::string folder;  ///< for kWrite

  std::string text() const;
  /// Throws Error (kUsage) for what text() didn't write.
  static ProbeRequest parse(const std::string& text);
};

/// What a child answers on its stdout.
struct ProbeAnswer {
  std::vector<std::pair<std::string, double>> figures;
  std::vector<std::string> wrong;  ///< what was computed or copied wrong, a sentence each

  std::string text() const;
  /// Of a child's stdout, to which libraries may have written too: the last line that begins as an answer
  /// does. Throws Error where there is none.
  static ProbeAnswer parse(const std::string& output);
  /// The figure of this name, 0 where there is none.
  double figure(const std::string& name) const;
};

}  // namespace lorikeet::probe
