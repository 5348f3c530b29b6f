# Decides whether CUDA code is built, with which compiler: the one in the virtual environment's wheels, so that
# no toolkit has to be installed, else one on PATH. Sets LORIKEET_WITH_CUDA.
set(LORIKEET_WITH_CUDA FALSE)
if(LORIKEET_TORCH AND NOT LORIKEET_CUDA STREQUAL "OFF")
  find_program(LORIKEET_NVCC nvcc PATHS "${LIBTORCH_SITE}/nvidia/cu13/bin" NO_DEFAULT_PATH NO_CACHE)
  find_program(LORIKEET_NVCC nvcc NO_CACHE)
  if(LORIKEET_NVCC AND EXISTS "${LIBTORCH_ROOT}/lib/libtorch_cuda.so")
    set(LORIKEET_WITH_CUDA TRUE)
  elseif(LORIKEET_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LORIKEET_CUDA=ON, but there is no nvcc in ${LORIKEET_VENV} or on PATH, or the torch "
      "wheel is one without CUDA; run scripts/setup, or configure with -DLORIKEET_CUDA=OFF")
  endif()
endif()

if(LORIKEET_WITH_CUDA)
  set(CMAKE_CUDA_COMPILER "${LORIKEET_NVCC}")
  set(CMAKE_CUDA_STANDARD 17)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    # Turing; Ampere and Ada; Hopper, and as PTX, which the driver compiles, all after it.
    set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90")
  endif()
  # The runtime is linked as the shared library of the wheel, by path: it has no unversioned name there.
  set(CMAKE_CUDA_COMPILER_FORCED TRUE)
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  # Unchecked, the compiler's own include folders are unknown too: without them CMake would pass /usr/include as a
  # system folder, which breaks the host's <cmath>.
  set(CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  # To learn the compiler's identity CMake links a program; nvcc looks for its libraries in lib64, the wheel has lib.
  set(_library_path "$ENV{LIBRARY_PATH}")
  get_filename_component(_cuda_root "${LORIKEET_NVCC}/../.." ABSOLUTE)
  set(ENV{LIBRARY_PATH} "${_cuda_root}/lib:${_library_path}")
  enable_language(CUDA)
  set(ENV{LIBRARY_PATH} "${_library_path}")
  # A forced compiler's own include folders are unknown: without them CMake would pass /usr/include as a system
  # folder, which hides the host's <math.h> from its <cmath>.
  set(CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
endif()
message(STATUS "CUDA code: ${LORIKEET_WITH_CUDA}")

# NVTX is headers alone, which come with the CUDA compiler: ranges are told to it where they are.
if(LORIKEET_TORCH)
  find_path(LORIKEET_NVTX_INCLUDE nvtx3/nvToolsExt.h PATHS "${LIBTORCH_SITE}/nvidia/cu13/include" NO_DEFAULT_PATH NO_CACHE)
  if(LORIKEET_NVCC)
    find_path(LORIKEET_NVTX_INCLUDE nvtx3/nvToolsExt.h PATHS "${LORIKEET_NVCC}/../../include" NO_DEFAULT_PATH NO_CACHE)
  endif()
endif()
