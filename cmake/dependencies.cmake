# SPDX-License-Identifier: Apache-2.0
# The small libraries: found on the system, or downloaded by FetchContent where they are not.
include(FetchContent)

FetchContent_Declare(range-v3 GIT_REPOSITORY https://github.com/ericniebler/range-v3.git GIT_TAG 0.12.0 FIND_PACKAGE_ARGS)
FetchContent_Declare(nlohmann_json URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz FIND_PACKAGE_ARGS 3.11)
FetchContent_MakeAvailable(range-v3 nlohmann_json)

# utf8proc ships no CMake package on Debian, only pkg-config: a small interface target serves both ways.
if(NOT TARGET toller_utf8proc)
  add_library(toller_utf8proc INTERFACE)
  find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
  find_library(UTF8PROC_LIBRARY utf8proc)
  if(UTF8PROC_INCLUDE_DIR AND UTF8PROC_LIBRARY)
    target_link_libraries(toller_utf8proc INTERFACE $<BUILD_INTERFACE:${UTF8PROC_LIBRARY}> $<INSTALL_INTERFACE:utf8proc>)
    target_include_directories(toller_utf8proc SYSTEM INTERFACE $<BUILD_INTERFACE:${UTF8PROC_INCLUDE_DIR}>)
  else()
    FetchContent_Declare(utf8proc GIT_REPOSITORY https://github.com/JuliaStrings/utf8proc.git GIT_TAG v2.9.0)
    FetchContent_MakeAvailable(utf8proc)
    target_link_libraries(toller_utf8proc INTERFACE $<BUILD_INTERFACE:utf8proc> $<INSTALL_INTERFACE:utf8proc>)
  endif()
endif()
