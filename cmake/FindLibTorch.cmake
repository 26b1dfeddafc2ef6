# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch in a pip wheel, a libtorch zip or an installed package, with or without CUDA, and needs no CUDA toolkit.
#
#   LibTorch_ROOT or TOLLER_LIBTORCH   where to look: a folder with include/ and lib/, site-packages, or a virtual environment
#   TOLLER_CUDA                        AUTO (default): use CUDA when the libraries it needs are there; ON: demand it; OFF: processor only
#
# Makes   LibTorch::LibTorch           one imported target
#         LibTorch_VERSION, LibTorch_CUDA (TRUE or FALSE), LibTorch_RUNTIME_DIRS (folders that a program needs at run time)

set(_lt_hints ${TOLLER_LIBTORCH} ${LibTorch_ROOT} $ENV{LibTorch_ROOT} ${CMAKE_CURRENT_LIST_DIR}/../.deps/torch $ENV{VIRTUAL_ENV} ${CMAKE_PREFIX_PATH})
set(_lt_candidates)
foreach(_lt_hint IN LISTS _lt_hints)
  list(APPEND _lt_candidates ${_lt_hint} ${_lt_hint}/torch)
  file(GLOB _lt_glob ${_lt_hint}/lib/python3*/site-packages/torch ${_lt_hint}/lib64/python3*/site-packages/torch)
  list(APPEND _lt_candidates ${_lt_glob})
endforeach()

find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h PATHS ${_lt_candidates} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT LibTorch_INCLUDE_DIR)
  # last: the torch of the python on the PATH, then the system's own folders
  find_program(_lt_python NAMES python3 python)
  if(_lt_python)
    execute_process(COMMAND ${_lt_python} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE _lt_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h PATHS ${_lt_site} PATH_SUFFIXES include)
endif()

if(LibTorch_INCLUDE_DIR)
  get_filename_component(_lt_home ${LibTorch_INCLUDE_DIR} DIRECTORY)
  foreach(_lt_lib c10 torch torch_cpu torch_cuda c10_cuda)
    find_library(LibTorch_${_lt_lib}_LIBRARY NAMES ${_lt_lib} PATHS ${_lt_home}/lib ${_lt_home}/lib64 NO_DEFAULT_PATH)
    mark_as_advanced(LibTorch_${_lt_lib}_LIBRARY)
  endforeach()
  if(EXISTS ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
    set(_lt_version_file ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  else()
    set(_lt_version_file ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h)
  endif()
  if(EXISTS ${_lt_version_file})
    file(STRINGS ${_lt_version_file} _lt_lines REGEX "#define TORCH_VERSION(_MAJOR|_MINOR|_PATCH) ")
    foreach(_lt_part MAJOR MINOR PATCH)
      string(REGEX MATCH "TORCH_VERSION_${_lt_part} ([0-9]+)" _ "${_lt_lines}")
      set(_lt_${_lt_part} ${CMAKE_MATCH_1})
    endforeach()
    set(LibTorch_VERSION ${_lt_MAJOR}.${_lt_MINOR}.${_lt_PATCH})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_INCLUDE_DIR LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run scripts/setup.sh, or set TOLLER_LIBTORCH to a virtual environment that holds the torch wheel or to an unpacked libtorch")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  # A wheel keeps its CUDA libraries beside it, in nvidia/*/lib.
  get_filename_component(_lt_site_packages ${_lt_home} DIRECTORY)
  file(GLOB _lt_nvidia_libs ${_lt_site_packages}/nvidia/*/lib)
  file(GLOB _lt_nvidia_includes ${_lt_site_packages}/nvidia/*/include)
  find_path(LibTorch_NCCL_INCLUDE_DIR NAMES nccl.h PATHS ${_lt_nvidia_includes})
  find_library(LibTorch_NCCL_LIBRARY NAMES nccl libnccl.so.2 PATHS ${_lt_nvidia_libs})
  find_path(LibTorch_CUDA_INCLUDE_DIR NAMES cuda_runtime_api.h PATHS ${_lt_nvidia_includes} /usr/local/cuda/include)
  mark_as_advanced(LibTorch_NCCL_INCLUDE_DIR LibTorch_NCCL_LIBRARY LibTorch_CUDA_INCLUDE_DIR)

  set(TOLLER_CUDA AUTO CACHE STRING "Build for CUDA: AUTO, ON or OFF")
  set_property(CACHE TOLLER_CUDA PROPERTY STRINGS AUTO ON OFF)
  set(LibTorch_CUDA FALSE)
  if(NOT TOLLER_CUDA STREQUAL "OFF" AND LibTorch_torch_cuda_LIBRARY AND LibTorch_CUDA_INCLUDE_DIR AND LibTorch_NCCL_LIBRARY)
    set(LibTorch_CUDA TRUE)
  elseif(TOLLER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TOLLER_CUDA=ON, but ${_lt_home} lacks CUDA parts: libtorch_cuda '${LibTorch_torch_cuda_LIBRARY}', cuda_runtime_api.h "
                        "'${LibTorch_CUDA_INCLUDE_DIR}', libnccl '${LibTorch_NCCL_LIBRARY}'. Install the torch wheel with its dependencies.")
  endif()

  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  # SYSTEM: warnings inside torch's headers are not the user's.
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_INCLUDE_DIR} ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include)
  find_package(Threads REQUIRED)
  set(LibTorch_RUNTIME_DIRS ${_lt_home}/lib ${_lt_nvidia_libs})
  # What libtorch_cpu.so itself needs lies in nvidia/*/lib; the linker must find it to resolve symbols.
  set(_lt_search)
  foreach(_lt_dir IN LISTS _lt_nvidia_libs)
    list(APPEND _lt_search "LINKER:-rpath-link,${_lt_dir}" "LINKER:-rpath,${_lt_dir}")
  endforeach()
  target_link_options(LibTorch::LibTorch INTERFACE ${_lt_search})
  if(LibTorch_CUDA)
    target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_CUDA_INCLUDE_DIR})
    if(LibTorch_NCCL_INCLUDE_DIR)
      target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE ${LibTorch_NCCL_INCLUDE_DIR})
    endif()
    # The CUDA kernels register themselves when their library is loaded, so it must be linked although nothing names it.
    target_link_libraries(LibTorch::LibTorch INTERFACE -Wl,--no-as-needed ${LibTorch_torch_LIBRARY} ${LibTorch_torch_cuda_LIBRARY}
      ${LibTorch_torch_cpu_LIBRARY} ${LibTorch_c10_cuda_LIBRARY} ${LibTorch_c10_LIBRARY} ${LibTorch_NCCL_LIBRARY} -Wl,--as-needed Threads::Threads)
  else()
    target_link_libraries(LibTorch::LibTorch INTERFACE ${LibTorch_torch_cpu_LIBRARY} ${LibTorch_c10_LIBRARY} Threads::Threads)
  endif()
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR)
