// usage: convert_tool FILE...
//
// For each file a JSON line: {"yaml": ...} where it converts and the result loads as a config of ours,
// {"refused": ...} where it doesn't convert, {"yaml": ..., "invalid": ...} where the result doesn't load.
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "config/config.h"
#include "convert/convert.h"

using namespace lorikeet;

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    Json line;
    try {
      const std::string yaml = convert::convert_config(read_file(argv[i]), argv[i]).yaml;
      line.set("yaml", yaml);
      try {
        config::parse_settings(yaml, "converted");
      } catch (const Error& error) {
        line.set("invalid", error.what());
      }
    } catch (const Error& error) {
      line.set("refused", error.what());
    }
    std::cout << line.dump() << "\n";
  }
  return 0;
}
