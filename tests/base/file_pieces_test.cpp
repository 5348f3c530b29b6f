#include "base/file_pieces.h"

#include <string>
#include <vector>

#include "support/catch.h"
#include "support/paths.h"

using namespace lorikeet;

TEST_CASE("the pieces of a file are its bytes in their order, none larger than 8 MiB") {
  const test::TemporaryFolder folder;
  std::string bytes;
  for (std::size_t i = 0; i < (std::size_t{20} << 20) + 7; ++i) bytes += static_cast<char>(i * 31 >> 5);
  write_file_atomic(folder / "file", bytes);
  const MappedFile file(folder / "file");
  std::string read;
  std::vector<std::size_t> sizes;
  for_each_piece(file, [&](std::string_view piece) {
    read += piece;
    sizes.push_back(piece.size());
  });
  CHECK(read == bytes);
  CHECK(sizes == std::vector<std::size_t>{8 << 20, 8 << 20, (4 << 20) + 7});
  read.clear();
  for_each_piece(file, 5, (9 << 20) + 5, [&](std::string_view piece) { read += piece; });
  CHECK(read == bytes.substr(5, 9 << 20));
  for_each_piece(file, 5, 5, [&](std::string_view) { FAIL(); });
}
