# What counts as a source of the programs, where the build watches them and where their fingerprint is taken.

# program_source_patterns(OUT ROOT): patterns for file(GLOB_RECURSE)
function(program_source_patterns out root)
  set(patterns "")
  foreach(folder lib models recipes apps)
    foreach(suffix cpp h cu cuh)
      list(APPEND patterns "${root}/${folder}/*.${suffix}")
    endforeach()
  endforeach()
  set(${out} "${patterns}" PARENT_SCOPE)
endfunction()
