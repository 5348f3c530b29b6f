#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lorikeet::io {

/// Bytes that this user may still write where `folder` is or will be (its nearest existing parent counts).
/// Throws Error (kEnvironment) if that can't be found out.
std::uint64_t free_space_bytes(const std::filesystem::path& folder);

/// Throws Error (kEnvironment) with both numbers when fewer than `bytes` are free for `folder`.
void require_free_space(const std::filesystem::path& folder, std::uint64_t bytes);

/// Says which of `folder` and its parents is a link that leads nowhere, so that no folder can be made there;
/// "" where none is.
std::string link_to_nowhere(const std::filesystem::path& folder);

/// Makes `folder` with its parents unless it is there, and makes sure that files can be made in it.
/// Throws Error that says why not: kEnvironment when the system refuses (read-only, no permission, full
/// disk), kUsage when the path can't be a folder.
void make_writable_folder(const std::filesystem::path& folder);

/// True for the name of the file that make_writable_folder makes and removes to try a folder out.
bool is_probe_name(std::string_view name);

}  // namespace lorikeet::io
