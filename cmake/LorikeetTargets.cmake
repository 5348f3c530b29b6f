# Two helpers that declare every target with explicit dependencies.

# One translation unit compiles torch's headers for all targets that use them.
if(LORIKEET_TORCH)
  file(WRITE "${CMAKE_BINARY_DIR}/torch_pch.cpp" "// carries the precompiled header of libtorch\n")
  add_library(lorikeet_torch_pch OBJECT "${CMAKE_BINARY_DIR}/torch_pch.cpp")
  target_link_libraries(lorikeet_torch_pch PRIVATE lorikeet_options lorikeet::torch_cpu)
  target_precompile_headers(lorikeet_torch_pch PRIVATE <torch/torch.h>)
endif()

# lorikeet_library(NAME ops TORCH SOURCES ... DEPS base io ...)
#   target lorikeet_ops, alias lorikeet::ops. DEPS are layers' names or other targets. TORCH: sources that include
#   torch headers get the shared precompiled header.
function(lorikeet_library)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SOURCES;DEPS" ${ARGN})
  set(target lorikeet_${ARG_NAME})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(lorikeet::${ARG_NAME} ALIAS ${target})
  target_link_libraries(${target} PUBLIC lorikeet_options ${ARG_DEPS})
  if(ARG_TORCH)
    target_link_libraries(${target} PUBLIC lorikeet::torch_cpu)
    target_precompile_headers(${target} REUSE_FROM lorikeet_torch_pch)
  endif()
endfunction()

# lorikeet_test(NAME base SOURCES ... DEPS lorikeet::base ... [TORCH])
#   target test_base, and one ctest entry that runs all its cases.
function(lorikeet_test)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SOURCES;DEPS" ${ARGN})
  set(target test_${ARG_NAME})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE lorikeet_options lorikeet_test_support ${ARG_DEPS})
  if(ARG_TORCH)
    target_link_libraries(${target} PRIVATE lorikeet::torch_cpu)
    target_precompile_headers(${target} REUSE_FROM lorikeet_torch_pch)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${target} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
endfunction()
