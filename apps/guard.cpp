#include "apps/guard.h"

#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace lorikeet::apps {

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    log_info(std::string("error: ") + error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    log_info(
        "error: out of memory; lower batch.micro_tokens or data.max_seq_len, or set "
        "training.activation_checkpointing=full");
    return static_cast<int>(ErrorKind::kRunFailed);
  } catch (const std::exception& error) {
    log_info(std::string("error: ") + error.what());
    return static_cast<int>(ErrorKind::kRunFailed);
  }
}

}  // namespace lorikeet::apps
