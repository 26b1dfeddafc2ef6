// SPDX-License-Identifier: Apache-2.0
// The program of the packaging projects: needs toller's headers, LibTorch's headers and LibTorch's libraries.
#include <ATen/ATen.h>

#include <iostream>
#include <toller/toller.hpp>

static_assert(toller::PooledValue<toller::Embeddings>);

int main() {
  const toller::Embeddings embeddings{at::ones({2, 3})};
  std::cout << "toller " << TOLLER_VERSION << ": " << embeddings.values.size(0) << " vectors\n";
}
