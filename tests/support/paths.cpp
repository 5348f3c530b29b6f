#include "support/paths.h"

#include <cstdlib>
#include <stdexcept>

namespace lorikeet::test {

std::filesystem::path source_dir() { return LORIKEET_SOURCE_DIR; }

std::optional<std::filesystem::path> shared_data(const std::string& relative) {
  auto path = source_dir().parent_path() / "shared" / "data" / relative;
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lorikeet-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("can't make a temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lorikeet::test
