#include "apps/guard.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "comm/reason.h"
#include "ops/denormals.h"
#include "ops/matmul/product_cache.h"
#include "ops/out_of_memory.h"

namespace lorikeet::apps {
namespace {

// Opens a descriptor from 0 to 2 that the caller left closed: a data file or a checkpoint would get the
// number otherwise. Writing to stdout still fails, as it does where it is closed: a verb's result mustn't get
// lost without a word.
void open_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is fd: those below it are open by now.
    [[maybe_unused]] const int opened = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int out_of_memory() {
  log_error(
      "out of memory; lower batch.micro_tokens or data.max_seq_len, or set "
      "training.activation_checkpointing=auto training.offload=auto");
  return static_cast<int>(ErrorKind::kRunFailed);
}

// What a verb prints is its result: a full disk behind stdout mustn't pass for success.
bool all_was_printed() {
  std::cout.flush();
  if (std::cout && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  log_error(std::string("can't write all of the output to stdout: ") + std::strerror(errno));
  return false;
}

}  // namespace

void outlive_stderr() { std::signal(SIGPIPE, SIG_IGN); }

int guarded(const std::function<int()>& body) {
  open_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);
  // Both while there is one thread.
  ops::bound_product_caches();
  ops::flush_denormals();
  try {
    const int code = body();
    return code == 0 && !all_was_printed() ? static_cast<int>(ErrorKind::kEnvironment) : code;
  } catch (const std::exception& error) {
    if (ops::is_out_of_memory(error)) return out_of_memory();
    if (const auto* own = dynamic_cast<const Error*>(&error)) {
      log_error(own->what());
      return own->exit_code();
    }
    const bool of_device = dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr;
    log_error(
        comm::reason(error) +
        (of_device
             ? "; with CUDA_LAUNCH_BLOCKING=1 in the environment the call that fails is the one at fault"
             : ""));
    return static_cast<int>(ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::apps
