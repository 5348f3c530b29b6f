// print_rows PATH [SPLIT]: the rows of a source as JSON lines, for comparison with what pyarrow reads. Exits
// 2 with the error on stderr.
#include <iostream>

#include "base/error.h"
#include "data/load.h"

int main(int argc, char** argv) {
  using namespace lorikeet;
  if (argc < 2) return 1;
  try {
    data::RowOptions options;
    if (argc > 2) options.split = argv[2];
    const auto rows = data::open_source(argv[1], options);
    for (std::size_t i = 0; i < rows->size(); ++i) std::cout << rows->parse(i).dump() << '\n';
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
