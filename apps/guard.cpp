#include "apps/guard.h"

#include <malloc.h>

#include <climits>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace lorikeet::apps {

int guarded(const std::function<int()>& body) {
  // Large tensors come and go every step: keep their memory instead of returning it to the kernel, which
  // would have to zero every page again (three times the cost of the write itself).
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
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
