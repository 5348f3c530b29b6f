# Third-party libraries, each with the Debian package that brings it. scripts/setup installs them all.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)                                            # libyaml-cpp-dev
find_package(CLI11 REQUIRED)                                               # libcli11-dev
find_package(nlohmann_json 3.10 REQUIRED)                                  # nlohmann-json3-dev
find_package(OpenSSL REQUIRED COMPONENTS Crypto)                           # libssl-dev
find_package(CURL 7.85 REQUIRED)                                             # libcurl4-openssl-dev, 7.85 or newer
find_package(ZLIB REQUIRED)                                                # zlib1g-dev
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)    # libsentencepiece-dev
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)               # libpcre2-dev
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)           # libutf8proc-dev
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)                     # liblz4-dev
pkg_check_modules(SNAPPY REQUIRED IMPORTED_TARGET snappy)                  # libsnappy-dev
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)                   # libzstd-dev
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8.0)        # libxxhash-dev; XXH3 is fixed since 0.8.0
if(LORIKEET_TESTS)
  find_package(Catch2 REQUIRED)                                            # catch2
endif()
if(LORIKEET_TORCH)
  find_package(Libtorch REQUIRED)                                          # the torch wheel in LORIKEET_VENV
endif()
