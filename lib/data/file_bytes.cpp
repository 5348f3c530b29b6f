#include "data/file_bytes.h"

#include <utility>

#include "base/strings.h"
#include "data/gzip.h"
#include "data/zstd.h"

namespace lorikeet::data {

FileBytes::FileBytes(const std::filesystem::path& path)
    : name_(escape_control(path.filename().string())), map_(std::make_unique<MappedFile>(path)) {
  if (is_gzip(map_->bytes())) {
    unpacked_ = std::make_unique<std::string>(gunzip(map_->bytes(), name_));
  } else if (is_zstd(map_->bytes())) {
    unpacked_ = std::make_unique<std::string>(unzstd(map_->bytes(), name_));
  }
  if (unpacked_) map_.reset();
}

FileBytes::FileBytes(std::string bytes, std::string name)
    : name_(std::move(name)), unpacked_(std::make_unique<std::string>(std::move(bytes))) {}

std::string_view FileBytes::text() const {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  return bytes().substr(bytes().starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
}

void FileBytes::release(std::string_view part) const {
  if (!unpacked_) map_->drop_pages(static_cast<std::size_t>(part.data() - bytes().data()), part.size());
}

void PassedBytes::pass(const char* place) {
  const auto passed = static_cast<std::size_t>(place - file_.bytes().data());
  if (passed < released_ + FileBytes::kPieceBytes) return;
  file_.release(file_.bytes().substr(released_, passed - released_));
  released_ = passed;
}

}  // namespace lorikeet::data
