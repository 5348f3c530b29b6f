// tokenize_lines_tool FOLDER [--decode] [--no-specials] [--bos-eos] [--plain-specials] < lines > lines
// A bare front of tokenize_lines for the tests that compare with the PyPI packages.
#include <cstring>
#include <exception>
#include <iostream>

#include "base/error.h"
#include "text/tokenize_lines.h"

int main(int argc, char** argv) {
  using namespace lorikeet;
  text::TokenizeLinesOptions options;
  const char* folder = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--decode") == 0) {
      options.decode = true;
    } else if (std::strcmp(argv[i], "--no-specials") == 0) {
      options.specials = false;
    } else if (std::strcmp(argv[i], "--bos-eos") == 0) {
      options.bos_eos = true;
    } else if (std::strcmp(argv[i], "--plain-specials") == 0) {
      options.parse_special = false;
    } else {
      folder = argv[i];
    }
  }
  try {
    if (folder == nullptr) throw Error("[tokenize_lines_tool] expected a tokenizer's folder");
    std::ios::sync_with_stdio(false);
    text::tokenize_lines(*text::load_tokenizer(folder), std::cin, std::cout, options);
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
