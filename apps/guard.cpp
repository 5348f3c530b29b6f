#include "apps/guard.h"

#include <c10/util/Exception.h>

#include <exception>
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

}  // namespace

int guarded(const std::function<int()>& body) {
  try {
    return body();
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
