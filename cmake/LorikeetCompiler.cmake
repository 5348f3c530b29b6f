# Language level, warnings, sanitizers, linker and compiler cache: everything that is the same for all targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# CMAKE_POSITION_INDEPENDENT_CODE stays unset: it gives libraries -fPIC and executables -fPIE, and GCC refuses a
# precompiled header made with the other one. Everything here is static, so the compiler's default serves all.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g0")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

# Own code only: dependencies come as SYSTEM includes.
add_library(lorikeet_options INTERFACE)
target_compile_options(lorikeet_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers>)
target_compile_options(lorikeet_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;--Werror=all-warnings>")
# GCC 12 takes moves of std::variant for reads of uninitialised members (GCC bug 105562 and kin).
target_compile_options(lorikeet_options INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
target_include_directories(lorikeet_options INTERFACE "${CMAKE_SOURCE_DIR}/lib" "${CMAKE_SOURCE_DIR}")

if(LORIKEET_SANITIZE)
  # Instrumented code compiles twice as fast so, and its traces still name lines.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  target_compile_options(lorikeet_options INTERFACE
    -fsanitize=${LORIKEET_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(lorikeet_options INTERFACE -fsanitize=${LORIKEET_SANITIZE})
endif()

find_program(LORIKEET_CCACHE ccache)
if(LORIKEET_CCACHE)
  # Precompiled headers under ccache need this setting when it runs, and -fpch-preprocess (ccache manual,
  # "Precompiled headers"). A launcher with env holds for every way to start the build.
  find_program(LORIKEET_ENV env REQUIRED)
  set(_sloppiness "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${LORIKEET_ENV}" "${_sloppiness}" "${LORIKEET_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${LORIKEET_CCACHE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()

find_program(LORIKEET_MOLD mold)
if(LORIKEET_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
