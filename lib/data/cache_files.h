#pragma once

#include <filesystem>
#include <string>

namespace lorikeet::data {

// Tokens are the user's data in another spelling: nobody else may read them, nor put others in their place.
// The folder that keeps them may be one that is there for other things too, like the system's temporary one,
// so that all is in the files' own modes and owners.

/// Makes `folder` with mode 0700 where it is absent. One that is there, or that a link leads to, is used as
/// it is, its mode unchanged. Returns "" or why it can't serve: it is no folder, can't be made, or others may
/// replace files in it (all may write and it has no sticky bit; or it is another user's, whose group may).
std::string prepare_cache_folder(const std::filesystem::path& folder);

/// Whether `file` is a regular file of this user's, no link, that nobody else may write.
bool is_own_file(const std::filesystem::path& file);

/// Removes what killed processes left of writing "<64 hexadecimal digits>.tokens" or ".note": regular files
/// of this user's with a temporary name for one (base/temporary.h) that nobody has written to for an hour:
/// their writer may live, on this machine or another one. Follows no link in the folder. Returns how many
/// there were.
int remove_stale_temporaries(const std::filesystem::path& folder);

}  // namespace lorikeet::data
