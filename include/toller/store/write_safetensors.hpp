// SPDX-License-Identifier: Apache-2.0
// T1. Writes safetensors files as the reference lays them out, atomically.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/store/atomic_file.hpp"
#include "toller/store/dtypes.hpp"
#include "toller/store/json_file.hpp"

namespace toller {

/// Tensors and their names, in the order in which they are to be written.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Writes tensors to a safetensors file: any device, any strides; tensors that share storage are written each in full.
///
/// The header is padded with spaces to 8 bytes, wider elements come first (so that all are aligned), otherwise the order stays.
/// Errors   FileError R422: a tensor that the format cannot hold (undefined, sparse, quantized), or a name twice. R420: not
///          writable or disk full; then the file that was there before is untouched.
/// Cost     One tensor at a time is copied to the CPU.
inline void write_safetensors(const std::filesystem::path& path, NamedTensors tensors,
                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}}) {
  static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");
  std::set<std::string> seen{"__metadata__"};
  for (const auto& [name, tensor] : tensors) {
    const auto fail = [&, n = name](std::string_view what) {
      throw FileError("R422", detail::cat("cannot write ", path.string(), ": tensor ", detail::in_quotes(n), ": ", what));
    };
    if (!seen.insert(name).second) fail("a name that is taken");
    if (!tensor.defined()) fail("is undefined");
    if (tensor.layout() != at::kStrided || tensor.is_meta()) fail("has no plain storage");
    if (!detail::name_of_dtype(tensor.scalar_type()))
      fail(detail::cat("the format has no dtype ", c10::toString(tensor.scalar_type())));
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(tensor.numel() * tensor.element_size());
    header[name] = {{"dtype", *detail::name_of_dtype(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();

  AtomicFile file(path);
  file.write({reinterpret_cast<const char*>(&length), 8});
  file.write(text);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    file.write(
        {static_cast<const char*>(plain.const_data_ptr()), static_cast<std::size_t>(plain.numel() * plain.element_size())});
  }
  file.commit();
}

}  // namespace toller
