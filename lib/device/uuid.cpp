#include "device/uuid.h"

#include "base/strings.h"

namespace lorikeet::device {

bool is_uuid(std::string_view text) { return text.starts_with("GPU-") || text.starts_with("MIG-"); }

bool uuid_begins(std::string_view uuid, std::string_view beginning) {
  return ascii_lower(uuid).starts_with(ascii_lower(beginning));
}

}  // namespace lorikeet::device
