# SPDX-License-Identifier: Apache-2.0
# What our own tests, examples and benchmarks are built with.
add_library(toller_developer INTERFACE)
target_link_libraries(toller_developer INTERFACE toller::toller)
target_compile_options(toller_developer INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
  $<$<BOOL:${TOLLER_WERROR}>:-Werror> $<$<CXX_COMPILER_ID:GNU>:-fmax-errors=5>)
