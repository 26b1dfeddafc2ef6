# SPDX-License-Identifier: Apache-2.0
# Finds utf8proc, whose Debian package has no CMake files. Makes utf8proc::utf8proc; sets Utf8proc_VERSION.
find_path(Utf8proc_INCLUDE_DIR NAMES utf8proc.h)
find_library(Utf8proc_LIBRARY NAMES utf8proc)
mark_as_advanced(Utf8proc_INCLUDE_DIR Utf8proc_LIBRARY)
if(Utf8proc_INCLUDE_DIR)
  file(STRINGS "${Utf8proc_INCLUDE_DIR}/utf8proc.h" _utf8proc_lines REGEX "#define UTF8PROC_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE ".*_MAJOR +([0-9]+).*_MINOR +([0-9]+).*_PATCH +([0-9]+).*" "\\1.\\2.\\3" Utf8proc_VERSION "${_utf8proc_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Utf8proc REQUIRED_VARS Utf8proc_LIBRARY Utf8proc_INCLUDE_DIR VERSION_VAR Utf8proc_VERSION)

if(Utf8proc_FOUND AND NOT TARGET utf8proc::utf8proc)
  add_library(utf8proc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(utf8proc::utf8proc PROPERTIES IMPORTED_LOCATION "${Utf8proc_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${Utf8proc_INCLUDE_DIR}")
endif()
