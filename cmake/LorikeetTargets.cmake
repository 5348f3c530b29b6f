# Helpers that declare every target with explicit dependencies: lorikeet_library, lorikeet_app, lorikeet_test.

# lorikeet_precompiled_header(NAME torch HEADERS <a> ... DEPS ...)
#   target lorikeet_NAME_pch: one translation unit compiles the headers for all targets that reuse them from it.
function(lorikeet_precompiled_header)
  cmake_parse_arguments(ARG "" "NAME" "HEADERS;DEPS" ${ARGN})
  set(carrier "${CMAKE_BINARY_DIR}/${ARG_NAME}_pch.cpp")
  file(GENERATE OUTPUT "${carrier}" CONTENT "// carries the precompiled header ${ARG_NAME}\n")
  add_library(lorikeet_${ARG_NAME}_pch OBJECT "${carrier}")
  target_link_libraries(lorikeet_${ARG_NAME}_pch PRIVATE ${ARG_DEPS})
  target_precompile_headers(lorikeet_${ARG_NAME}_pch PRIVATE ${ARG_HEADERS})
endfunction()

# ATen's, not torch/torch.h: that leaves some 6 s of template instantiations to the end of every file.
if(LORIKEET_TORCH)
  lorikeet_precompiled_header(NAME torch DEPS lorikeet_options lorikeet::torch_cpu HEADERS <ATen/ATen.h>)
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

# lorikeet_cuda_module(NAME nccl SOURCES ... LOADED_BY comm)
#   shared library liblorikeet_NAME.so beside the programs, which may name symbols of libtorch's CUDA half. LOADED_BY: the
#   layer whose code loads it (base/program_module.h).
function(lorikeet_cuda_module)
  cmake_parse_arguments(ARG "" "NAME;LOADED_BY" "SOURCES" ${ARGN})
  set(target lorikeet_${ARG_NAME})
  add_library(${target} MODULE ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE lorikeet_options lorikeet::torch_cuda)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/apps")
  add_dependencies(lorikeet_${ARG_LOADED_BY} ${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${LORIKEET_INSTALL_LIBEXEC})
endfunction()

# lorikeet_app(NAME lorikeet SOURCES main.cpp ... DEPS lorikeet::recipes ... [TORCH])
#   executable NAME. Installed as libexec/lorikeet/NAME, with the launcher bin/NAME that finds libtorch for it. The
#   CUDA half of libtorch is loaded when a GPU is used (ops/cuda_library.h). TORCH as for lorikeet_library.
function(lorikeet_app)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE lorikeet_options ${ARG_DEPS})
  if(ARG_TORCH)
    target_link_libraries(${ARG_NAME} PRIVATE lorikeet::torch_cpu)
    target_precompile_headers(${ARG_NAME} REUSE_FROM lorikeet_torch_pch)
  endif()
  set_property(GLOBAL APPEND PROPERTY LORIKEET_APPS ${ARG_NAME})
  install(TARGETS ${ARG_NAME} RUNTIME DESTINATION ${LORIKEET_INSTALL_LIBEXEC})
  install(PROGRAMS "${LORIKEET_LAUNCHER}" DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME ${ARG_NAME})
endfunction()

# lorikeet_test(NAME base SOURCES ... DEPS lorikeet::base ... [TORCH])
#   target test_base, and one ctest entry that runs all its cases.
function(lorikeet_test)
  cmake_parse_arguments(ARG "TORCH" "NAME" "SOURCES;DEPS" ${ARGN})
  set(target test_${ARG_NAME})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE lorikeet_test_options lorikeet_test_support ${ARG_DEPS})
  if(ARG_TORCH)
    target_link_libraries(${target} PRIVATE lorikeet::torch_cpu)
    target_precompile_headers(${target} REUSE_FROM lorikeet_torch_test_pch)
  else()
    target_precompile_headers(${target} REUSE_FROM lorikeet_test_pch)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${target} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
endfunction()
