# SPDX-License-Identifier: Apache-2.0
# The small libraries: found on the system, or downloaded by FetchContent where they are not.
include(FetchContent)
if(TOLLER_INSTALL)
  set(JSON_Install ON)   # a downloaded nlohmann-json is installed beside toller
endif()

FetchContent_Declare(range-v3 GIT_REPOSITORY https://github.com/ericniebler/range-v3.git GIT_TAG 0.12.0 GIT_SHALLOW ON SYSTEM
                     FIND_PACKAGE_ARGS GLOBAL)
FetchContent_Declare(nlohmann_json URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz SYSTEM
                     DOWNLOAD_EXTRACT_TIMESTAMP OFF FIND_PACKAGE_ARGS 3.11 GLOBAL)
FetchContent_Declare(Utf8proc GIT_REPOSITORY https://github.com/JuliaStrings/utf8proc.git GIT_TAG v2.9.0 GIT_SHALLOW ON SYSTEM
                     FIND_PACKAGE_ARGS 2.8 MODULE GLOBAL)
FetchContent_MakeAvailable(range-v3 nlohmann_json Utf8proc)
if(NOT TARGET utf8proc::utf8proc)
  add_library(utf8proc::utf8proc ALIAS utf8proc)
endif()
