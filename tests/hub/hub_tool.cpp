// usage: hub_tool download|resolve|cached model|dataset REPO[@REV][/FILE] [GLOB ...]
//
// download: into the cache that the variables name, with waits of milliseconds between attempts. resolve:
// what "hub:REPO" leads to, downloaded where it is absent; cached: the same without a download. Writes the
// path, or the error to stderr with the exit code of its kind.
#include <chrono>
#include <exception>
#include <iostream>
#include <string>

#include "base/error.h"
#include "hub/resolve.h"

using namespace lorikeet;

namespace {

std::filesystem::path run(int argc, char** argv) {
  const std::string verb = argv[1], name = argv[3];
  const auto kind =
      argv[2] == std::string("dataset") ? hub::RepositoryKind::kDataset : hub::RepositoryKind::kModel;
  hub::DownloadOptions options;
  options.retry = {.most_attempts = 4,
                   .first_wait = std::chrono::milliseconds(20),
                   .longest_wait = std::chrono::seconds(5)};
  for (int i = 4; i < argc; ++i) options.include.emplace_back(argv[i]);
  const hub::Environment environment = hub::read_environment();
  if (verb == "download") return hub::download(hub::parse_repository(name, kind), environment, options);
  return hub::resolve(*hub::parse_hub_path("hub:" + name, kind), environment,
                      verb == "cached" ? hub::Absent::kError : hub::Absent::kDownload, options);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    std::cout << run(argc, argv).string() << "\n";
    return 0;
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << "unexpected: " << error.what() << "\n";
    return 99;
  }
}
