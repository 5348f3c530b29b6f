# A script that the build runs: writes OUTPUT, a C++ source that says which sources of SOURCE_DIR the programs were
# built from, as the sha256 over their names and contents. The same commit gives the same one everywhere.
include("${CMAKE_CURRENT_LIST_DIR}/ProgramSources.cmake")
program_source_patterns(_patterns "${SOURCE_DIR}")
file(GLOB_RECURSE _names RELATIVE "${SOURCE_DIR}" ${_patterns})
list(SORT _names)
set(_all "")
foreach(name ${_names})
  file(SHA256 "${SOURCE_DIR}/${name}" _hash)
  string(APPEND _all "${name} ${_hash}\n")
endforeach()
string(SHA256 _fingerprint "${_all}")
file(WRITE "${OUTPUT}"
  "#include \"recipes/source_fingerprint.h\"\n\n"
  "namespace lorikeet::recipes {\n\n"
  "std::string_view source_fingerprint() { return \"${_fingerprint}\"; }\n\n"
  "}  // namespace lorikeet::recipes\n")
