#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/digest.h"

namespace lorikeet::hub {

struct RemoteFile {
  std::string path;  ///< in the repository, "data/train.jsonl"
  std::uint64_t size = 0;
  Digest digest;
};

/// The files of a repository at one commit.
struct FileList {
  std::string commit;
  std::vector<RemoteFile> files;
};

/// Throws Error unless `path` is relative, of parts that are neither empty, "." nor "..", without backslashes
/// and control characters. `where` starts the error's text.
void require_safe_path(const std::string& path, const std::string& where);

/// Reads the Hub's answer to GET /api/models/REPO/revision/REV?blobs=true (or datasets): `sha`, and
/// `siblings` with rfilename, size, blobId and, for large files, lfs.sha256. Throws Error for anything that
/// isn't such an answer, names a file twice, or names one that could lead out of its folder.
FileList parse_file_list(std::string_view json, const std::string& where);

}  // namespace lorikeet::hub
