#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lorikeet::test {

/// The project's root folder.
std::filesystem::path source_dir();

/// A file or folder of the data beside the checkout (../shared/data), or nullopt when it isn't there:
/// the test then says so with WARN and returns.
std::optional<std::filesystem::path> shared_data(const std::string& relative);

/// A fresh folder under the system's temporary one, removed with all it holds when the object goes.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace lorikeet::test
