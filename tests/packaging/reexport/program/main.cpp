// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <searcher.hpp>

#include <iostream>
#include <toller/core/version.hpp>

int main() {
  std::cout << "toller " << TOLLER_VERSION << ": " << some_vectors(2).values.size(0) << " vectors\n";
}
