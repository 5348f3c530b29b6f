#include "apps/guard.h"

#include <c10/util/Exception.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace lorikeet::apps {
namespace {

int out_of_memory() {
  log_error(
      "out of memory; lower batch.micro_tokens or data.max_seq_len, or set "
      "training.activation_checkpointing=full");
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

int guarded(const std::function<int()>& body) {
  try {
    const int code = body();
    return code == 0 && !all_was_printed() ? static_cast<int>(ErrorKind::kEnvironment) : code;
  } catch (const Error& error) {
    log_error(error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const c10::OutOfMemoryError&) {
    return out_of_memory();
  } catch (const c10::Error& error) {
    log_error(error.what_without_backtrace());
    return static_cast<int>(ErrorKind::kRunFailed);
  } catch (const std::exception& error) {
    log_error(error.what());
    return static_cast<int>(ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::apps
