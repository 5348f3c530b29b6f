#pragma once

#include <map>
#include <string>
#include <string_view>

namespace lorikeet::io {

/// The members of a zip archive by their names, as views into `bytes`; of any size (zip64), uncompressed, as
/// torch.save writes them. `name` is the file's. Throws Error for what is no such archive, for compressed or
/// encrypted members, two of one name, and places outside of the file.
std::map<std::string, std::string_view, std::less<>> read_zip_directory(std::string_view bytes,
                                                                        const std::string& name);

}  // namespace lorikeet::io
