#pragma once

#include <filesystem>
#include <string>

namespace lorikeet::io {

/// Deletes the folder `name` in `parent` with all it holds, through file descriptors that never follow a
/// link: what a link inside points to stays, even if someone swaps a folder for a link meanwhile. Doesn't
/// cross into another file system. The file `last` directly in it goes after all others, so that a deletion
/// cut short can be recognised by it. Throws Error (kEnvironment) for what can't be removed.
void remove_tree(const std::filesystem::path& parent, const std::string& name, const std::string& last);

}  // namespace lorikeet::io
