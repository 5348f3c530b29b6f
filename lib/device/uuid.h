#pragma once

#include <string_view>

namespace lorikeet::device {

/// Whether `text` has the form of a GPU's or a MIG slice's UUID, or of the beginning of one.
bool is_uuid(std::string_view text);

/// Whether `uuid` begins with `beginning`, in either case of its letters, as CUDA compares them.
bool uuid_begins(std::string_view uuid, std::string_view beginning);

}  // namespace lorikeet::device
