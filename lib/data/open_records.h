#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include "data/file_bytes.h"
#include "data/record_source.h"

namespace lorikeet::data {

/// The rows of one data file of any kind, recognised by its content (file_kind). Throws Error when the file
/// can't be read or isn't well-formed.
std::unique_ptr<RecordSource> open_record_file(FileBytes file);

/// The rows of several files of one kind, end to end, as one source; of a single file, that file's. `name` is
/// the source's. Throws Error also when the files are of different kinds.
std::unique_ptr<RecordSource> open_record_files(std::span<const std::filesystem::path> files,
                                                const std::string& name);

/// The first `limit` rows of `source`, or all of them if it has fewer.
std::unique_ptr<RecordSource> first_records(std::unique_ptr<RecordSource> source, std::size_t limit);

}  // namespace lorikeet::data
