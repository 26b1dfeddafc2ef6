# SPDX-License-Identifier: Apache-2.0
# Finds LibTorch in a pip wheel, a libtorch zip or an installed package, with or without CUDA, and needs no CUDA toolkit.
#
#   TOLLER_LIBTORCH or LibTorch_ROOT   where to look, and then nowhere else: a folder with include/ and lib/, the folder a libtorch
#                                      zip was unpacked into, site-packages, or a virtual environment. Empty: CMAKE_PREFIX_PATH, TOLLER_DEPS,
#                                      .deps/ of this checkout, the active virtual environment, python3's torch, the system
#   TOLLER_CUDA                        AUTO (default): CUDA when a program links with what is there; ON: demand it; OFF: processor only
#
# Makes   LibTorch::LibTorch           one imported target
#         LibTorch_VERSION, LibTorch_CUDA (linked with the CUDA kernels), LibTorch_NCCL (CUDA's and NCCL's headers are there too: in
#         wheels CUDA's are in nvidia-cuda-runtime, and nvidia-cuda-crt and -cccl, which torch does not ask for), LibTorch_HOME (the folder that holds include/),
#         LibTorch_RUNTIME_DIRS (folders that a program needs at run time)
cmake_policy(PUSH)
cmake_policy(VERSION 3.25)

# --- where to look ---------------------------------------------------------------------------------------------------
set(_lt_asked ${TOLLER_LIBTORCH} ${LibTorch_ROOT} $ENV{LibTorch_ROOT})
if(_lt_asked)
  set(_lt_hints ${_lt_asked})
else()
  file(TO_CMAKE_PATH "$ENV{CMAKE_PREFIX_PATH}" _lt_env_prefixes)
  set(_lt_hints ${CMAKE_PREFIX_PATH} ${_lt_env_prefixes} "$ENV{TOLLER_DEPS}/torch" "${CMAKE_CURRENT_LIST_DIR}/../.deps/torch" $ENV{VIRTUAL_ENV} ${_lt_built_with})
endif()
if(NOT "${_lt_asked}" STREQUAL "${LibTorch_ASKED}")   # a build folder follows when the caller points elsewhere
  foreach(_lt_name IN ITEMS INCLUDE_DIR c10_LIBRARY torch_cpu_LIBRARY torch_cuda_LIBRARY c10_cuda_LIBRARY
                            CUDA_INCLUDE_DIR CUDA_CRT_DIR CUDA_CCCL_DIR NCCL_INCLUDE_DIR NCCL_LIBRARY LINKS_CUDA)
    unset(LibTorch_${_lt_name} CACHE)
  endforeach()
endif()
set(LibTorch_ASKED "${_lt_asked}" CACHE INTERNAL "where LibTorch was looked for")

set(_lt_candidates)
foreach(_lt_hint IN LISTS _lt_hints)
  get_filename_component(_lt_hint "${_lt_hint}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
  file(GLOB _lt_wheels "${_lt_hint}/lib/python3*/site-packages/torch" "${_lt_hint}/lib64/python3*/site-packages/torch")
  list(APPEND _lt_candidates "${_lt_hint}" "${_lt_hint}/torch" "${_lt_hint}/libtorch" ${_lt_wheels})
endforeach()
find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h PATHS ${_lt_candidates} PATH_SUFFIXES include NO_DEFAULT_PATH)
if(NOT LibTorch_INCLUDE_DIR AND NOT _lt_asked)
  find_program(LibTorch_PYTHON NAMES python3 python)
  mark_as_advanced(LibTorch_PYTHON)
  if(LibTorch_PYTHON)
    execute_process(COMMAND ${LibTorch_PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE _lt_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  find_path(LibTorch_INCLUDE_DIR NAMES ATen/core/Tensor.h HINTS ${_lt_site} PATH_SUFFIXES include)
endif()
mark_as_advanced(LibTorch_INCLUDE_DIR)

# --- its libraries and its version -----------------------------------------------------------------------------------
if(LibTorch_INCLUDE_DIR)
  get_filename_component(LibTorch_HOME "${LibTorch_INCLUDE_DIR}" DIRECTORY)
  foreach(_lt_lib IN ITEMS c10 torch_cpu torch_cuda c10_cuda)
    find_library(LibTorch_${_lt_lib}_LIBRARY NAMES ${_lt_lib} NO_DEFAULT_PATH
                 PATHS "${LibTorch_HOME}/lib" "${LibTorch_HOME}/lib64" "${LibTorch_HOME}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
    mark_as_advanced(LibTorch_${_lt_lib}_LIBRARY)
  endforeach()
  foreach(_lt_file IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${LibTorch_INCLUDE_DIR}/${_lt_file}")
      file(STRINGS "${LibTorch_INCLUDE_DIR}/${_lt_file}" _lt_lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX REPLACE ".*_MAJOR ([0-9]+).*_MINOR ([0-9]+).*_PATCH ([0-9]+).*" "\\1.\\2.\\3" LibTorch_VERSION "${_lt_lines}")
    endif()
  endforeach()
endif()

if(_lt_asked)
  set(_lt_advice "looked only where TOLLER_LIBTORCH or LibTorch_ROOT says: ${_lt_asked}. That should be a virtual environment that holds the torch wheel, or an unpacked libtorch")
else()
  set(_lt_advice "run scripts/setup.sh of toller, or set TOLLER_LIBTORCH to a virtual environment that holds the torch wheel or to an unpacked libtorch")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_INCLUDE_DIR LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY
  VERSION_VAR LibTorch_VERSION REASON_FAILURE_MESSAGE "${_lt_advice}")

# --- the target ------------------------------------------------------------------------------------------------------
if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  find_package(Threads REQUIRED)
  # A wheel keeps the libraries of NVIDIA beside it, in nvidia/*/lib; libtorch_cpu.so itself needs two of them.
  get_filename_component(_lt_site_packages "${LibTorch_HOME}" DIRECTORY)
  file(GLOB _lt_nvidia_libs "${_lt_site_packages}/nvidia/*/lib")
  file(GLOB _lt_nvidia_includes "${_lt_site_packages}/nvidia/*/include")
  set(LibTorch_RUNTIME_DIRS "${LibTorch_HOME}/lib" ${_lt_nvidia_libs})
  set(_lt_search)
  foreach(_lt_dir IN LISTS _lt_nvidia_libs)
    list(APPEND _lt_search "LINKER:-rpath-link,${_lt_dir}" "LINKER:-rpath,${_lt_dir}")
  endforeach()

  # The wheel's own parts come first: a toolkit on the machine may be of another version.
  find_path(LibTorch_CUDA_INCLUDE_DIR NAMES cuda_runtime_api.h PATHS ${_lt_nvidia_includes} NO_DEFAULT_PATH)
  find_path(LibTorch_CUDA_INCLUDE_DIR NAMES cuda_runtime_api.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  foreach(_lt_part IN ITEMS "CRT crt/host_defines.h" "CCCL nv/target")   # what cuda_runtime_api.h and cuda_fp16.h include
    separate_arguments(_lt_part)
    list(GET _lt_part 1 _lt_header)
    list(GET _lt_part 0 _lt_part)
    find_path(LibTorch_CUDA_${_lt_part}_DIR NAMES ${_lt_header} PATHS ${_lt_nvidia_includes} PATH_SUFFIXES cccl NO_DEFAULT_PATH)
    find_path(LibTorch_CUDA_${_lt_part}_DIR NAMES ${_lt_header} HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include PATH_SUFFIXES cccl)
    mark_as_advanced(LibTorch_CUDA_${_lt_part}_DIR)
  endforeach()
  find_path(LibTorch_NCCL_INCLUDE_DIR NAMES nccl.h PATHS ${_lt_nvidia_includes} NO_DEFAULT_PATH)
  find_library(LibTorch_NCCL_LIBRARY NAMES libnccl.so.2 nccl PATHS ${_lt_nvidia_libs} "${LibTorch_HOME}/lib" NO_DEFAULT_PATH)
  if(NOT _lt_nvidia_libs)
    find_path(LibTorch_NCCL_INCLUDE_DIR NAMES nccl.h HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include)
    find_library(LibTorch_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS $ENV{CUDA_HOME}/lib64 /usr/local/cuda/lib64)
  endif()
  mark_as_advanced(LibTorch_NCCL_INCLUDE_DIR LibTorch_NCCL_LIBRARY LibTorch_CUDA_INCLUDE_DIR)

  set(TOLLER_CUDA AUTO CACHE STRING "Build for CUDA: AUTO, ON or OFF")
  set_property(CACHE TOLLER_CUDA PROPERTY STRINGS AUTO ON OFF)
  # The CUDA kernels register themselves when their library is loaded, so it must be linked although nothing names it.
  # Not libtorch.so: it holds nothing but parts of std::filesystem, of which one crashes, and programs would find those first.
  set(_lt_cuda_libraries -Wl,--push-state,--no-as-needed "${LibTorch_torch_cuda_LIBRARY}" "${LibTorch_torch_cpu_LIBRARY}"
      "${LibTorch_c10_cuda_LIBRARY}" "${LibTorch_c10_LIBRARY}" -Wl,--pop-state)
  set(LibTorch_CUDA FALSE)
  set(_lt_why "TOLLER_CUDA is off")
  if(TOLLER_CUDA OR TOLLER_CUDA STREQUAL "AUTO")
    if(NOT LibTorch_torch_cuda_LIBRARY OR NOT LibTorch_c10_cuda_LIBRARY)
      set(_lt_why "libtorch_cuda is not in ${LibTorch_HOME}/lib")
    else()
      # What libtorch_cuda.so needs differs by version and package; the linker knows.
      if(NOT DEFINED LibTorch_LINKS_CUDA OR NOT (LibTorch_LINKS_CUDA OR TOLLER_CUDA STREQUAL "AUTO"))
        try_compile(_lt_links SOURCE_FROM_CONTENT links_cuda.cpp "int main() { return 0; }"
                    LINK_OPTIONS ${_lt_search} LINK_LIBRARIES ${_lt_cuda_libraries} OUTPUT_VARIABLE _lt_output NO_CACHE)
        set(_lt_missing)
        string(REGEX MATCHALL "lib[A-Za-z0-9_]+\\.so[.0-9]*, needed by" _lt_missing "${_lt_output}")
        list(REMOVE_DUPLICATES _lt_missing)
        string(REPLACE ", needed by" "" _lt_missing "${_lt_missing}")
        string(REPLACE ";" ", " _lt_missing "${_lt_missing}")
        set(LibTorch_LINKS_CUDA ${_lt_links} CACHE INTERNAL "a program links with libtorch_cuda")
        set(LibTorch_LINKS_CUDA_LACKS "${_lt_missing}" CACHE INTERNAL "what libtorch_cuda needs and is not there")
      endif()
      set(LibTorch_CUDA ${LibTorch_LINKS_CUDA})
      set(_lt_why "libraries that libtorch_cuda needs are missing: ${LibTorch_LINKS_CUDA_LACKS}")
    endif()
    if(NOT LibTorch_CUDA AND NOT TOLLER_CUDA STREQUAL "AUTO")
      message(FATAL_ERROR "TOLLER_CUDA=${TOLLER_CUDA}, but ${_lt_why}. Install the torch wheel with its dependencies, or a CUDA libtorch.")
    endif()
  endif()

  add_library(LibTorch::LibTorch INTERFACE IMPORTED)   # an imported target's headers are system headers: no warnings from them
  target_include_directories(LibTorch::LibTorch INTERFACE "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_options(LibTorch::LibTorch INTERFACE ${_lt_search})
  set(LibTorch_NCCL FALSE)
  set(_lt_nccl "NCCL")
  if(LibTorch_CUDA)
    target_link_libraries(LibTorch::LibTorch INTERFACE ${_lt_cuda_libraries})
    foreach(_lt_part IN ITEMS CUDA_INCLUDE_DIR CUDA_CRT_DIR CUDA_CCCL_DIR NCCL_INCLUDE_DIR NCCL_LIBRARY)
      if(NOT LibTorch_${_lt_part})
        set(_lt_nccl "no NCCL (${_lt_part} not found; CUDA's headers come with nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl)")
      endif()
    endforeach()
    if(_lt_nccl STREQUAL "NCCL")
      set(LibTorch_NCCL TRUE)
      target_include_directories(LibTorch::LibTorch INTERFACE "${LibTorch_CUDA_INCLUDE_DIR}" ${_lt_nvidia_includes}
                                 "${LibTorch_NCCL_INCLUDE_DIR}" "${LibTorch_CUDA_CRT_DIR}" "${LibTorch_CUDA_CCCL_DIR}")
      target_link_libraries(LibTorch::LibTorch INTERFACE "${LibTorch_NCCL_LIBRARY}")
      target_compile_definitions(LibTorch::LibTorch INTERFACE USE_C10D_NCCL)   # as libtorch_cuda itself was built
    endif()
  else()
    target_link_libraries(LibTorch::LibTorch INTERFACE "${LibTorch_torch_cpu_LIBRARY}" "${LibTorch_c10_LIBRARY}")
  endif()
  target_link_libraries(LibTorch::LibTorch INTERFACE Threads::Threads)
  if(NOT LibTorch_FIND_QUIETLY)
    if(LibTorch_CUDA)
      message(STATUS "LibTorch ${LibTorch_VERSION} with CUDA, ${_lt_nccl}")
    else()
      message(STATUS "LibTorch ${LibTorch_VERSION} for the processor only (${_lt_why})")
    endif()
  endif()
endif()
cmake_policy(POP)
