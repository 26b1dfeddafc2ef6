// SPDX-License-Identifier: Apache-2.0
// Declarations that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp asks for; the code is in libtorch_cpu.so.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

/// What `ProcessGroupGloo::GlooStore` overrides. Neither is ever made here: their tables of virtual functions are the library's.
class Store {
public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace gloo::rendezvous
