#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "config/settings.h"

namespace lorikeet::probe {

enum class ProbeKind { kMatmul, kTransfer, kPeerCopy, kAllReduce, kWrite, kOperator };

/// Its name in the table: "matrix product", "host copies", "peer copy", "all-reduce", "disk write",
/// "operator".
const char* name_of(ProbeKind kind);

/// What a child process measures, passed on its command line.
struct ProbeRequest {
  ProbeKind kind = ProbeKind::kMatmul;
  int device = -1;  ///< CUDA's number; -1 is the CPU
  DType compute = DType::kBF16;
  config::Matmul matmul = config::Matmul::kFp32;
  std::vector<int> peers;  ///< for kPeerCopy: the destinations
  // for kAllReduce
  std::int64_t bytes = std::int64_t{4} << 20;  ///< of the sum
  int rank = 0, size = 1, port = 0;
  int listen_fd = -1;  ///< rank 0's
  double limit_seconds = 20;
  std::string folder;  ///< for kWrite
  std::string op;      ///< for kOperator: which one

  std::string text() const;
  /// Throws Error (kUsage) when `text` was not written by text().
  static ProbeRequest parse(const std::string& text);
};

/// What a child answers on its stdout.
struct ProbeAnswer {
  std::vector<std::pair<std::string, double>> figures;
  std::vector<std::string> wrong;  ///< a sentence for each wrong result

  std::string text() const;
  /// Reads the last line of a child's stdout that begins as an answer does: libraries may write there too.
  /// Throws Error when there is none.
  static ProbeAnswer parse(const std::string& output);
  /// The figure of this name, 0 when there is none.
  double figure(const std::string& name) const;
};

}  // namespace lorikeet::probe
