#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "base/strings.h"

namespace lorikeet {
namespace {

std::atomic<bool> silent{false};

void write_line(std::string_view prefix, std::string_view message) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  std::string line(prefix);
  line += terminal ? escape_control(message) : std::string(message);
  line += '\n';
  // One call a line: lines of several threads or processes never interleave.
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

void log_info(std::string_view message) {
  if (!silent) write_line("", message);
}
void log_warning(std::string_view message) {
  if (!silent) write_line("warning: ", message);
}
void log_error(std::string_view message) { write_line("error: ", message); }
void silence_log() { silent = true; }

}  // namespace lorikeet
