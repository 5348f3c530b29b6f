#include "base/file_pieces.h"

#include <algorithm>

namespace lorikeet {

void for_each_piece(const MappedFile& file, std::size_t begin, std::size_t end,
                    const std::function<void(std::string_view)>& use) {
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
  for (std::size_t at = begin; at < end; at += kPieceBytes) {
    const std::size_t length = std::min(kPieceBytes, end - at);
    use(file.bytes().substr(at, length));
    file.drop_pages(at, length);
  }
}

}  // namespace lorikeet
