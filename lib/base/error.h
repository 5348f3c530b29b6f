#pragma once

#include <stdexcept>
#include <string>

namespace lorikeet {

/// What an error means for the process's exit code; only an app's `main` turns it into one.
enum class ErrorKind {
  kRunFailed = 1,      ///< the work started and failed
  kUsage = 2,          ///< bad command line, config, checkpoint or data
  kEnvironment = 3,    ///< the machine can't do it (no such device, disk full)
  kInterrupted = 130,  ///< stopped by a signal after saving
};

/// The one exception type of the libraries. The text follows one form:
/// "[where] what was expected, what was found; what to do".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, ErrorKind kind = ErrorKind::kUsage)
      : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const noexcept { return kind_; }
  int exit_code() const noexcept { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

}  // namespace lorikeet
