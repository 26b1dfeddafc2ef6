// SPDX-License-Identifier: Apache-2.0
// T2. Reads safetensors files: mapped into memory, every byte of the layout checked.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "toller/core/error.hpp"
#include "toller/core/mapped_file.hpp"
#include "toller/store/dtypes.hpp"
#include "toller/store/json_file.hpp"

namespace toller {

/// A safetensors file, open for reading. Cheap to copy: copies share the mapping.
///
/// Types    F64 F32 F16 BF16, I64 I32 I16 I8, U64 U32 U16 U8, BOOL, F8_E4M3 F8_E5M2 F8_E8M0, C64 C128.
/// Errors   FileError R401: missing or not readable. R402: not a safetensors file, or its header is damaged. R403: a tensor's
///          entry is wrong. R404: the tensors do not fill the file exactly (cut, overlapping, with holes or bytes left over).
/// Source   The format's page, https://github.com/huggingface/safetensors#format.
class SafetensorsFile {
public:
  [[nodiscard]] static SafetensorsFile open(const std::filesystem::path& path) { return SafetensorsFile(path); }

  /// Names in the order of their bytes in the file.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const Entry& entry : entries_) result.push_back(entry.name);
    return result;
  }
  [[nodiscard]] bool has(const std::string& name) const { return index_.count(name) > 0; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept { return metadata_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape(const std::string& name) const { return entry(name).shape; }
  [[nodiscard]] at::ScalarType dtype(const std::string& name) const { return entry(name).type; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return mapping_->path(); }

  /// The tensor on the CPU: a view of the mapped file that keeps the mapping alive (a copy if its bytes are not aligned).
  ///
  /// Writing to it changes memory only. Take a `clone()` of what is to be trained or kept while the file may be cut.
  /// Errors   FileError R405: no tensor of that name. R403: a BOOL that is neither 0 nor 1.
  [[nodiscard]] at::Tensor tensor(const std::string& name) const {
    const Entry& found = entry(name);
    const auto options = at::TensorOptions(found.type);
    if (found.begin == found.end) return at::empty(found.shape, options);
    char* bytes = mapping_->data() + data_offset_ + found.begin;
    if (found.type == at::ScalarType::Bool &&
        std::any_of(bytes, bytes + (found.end - found.begin), [](char c) { return c != 0 && c != 1; }))
      fail("R403", name, "a BOOL is neither 0 nor 1");
    if (reinterpret_cast<std::uintptr_t>(bytes) % alignment(found.type) != 0) {
      at::Tensor copy = at::empty(found.shape, options);
      std::memcpy(copy.data_ptr(), bytes, found.end - found.begin);
      return copy;
    }
    return at::from_blob(
        bytes, found.shape, [keep = mapping_](void*) {}, options);
  }

private:
  struct Entry {
    std::string name{};
    at::ScalarType type = at::ScalarType::Float;
    std::vector<std::int64_t> shape{};
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  static constexpr std::uint64_t longest_header = 100'000'000;  // the reference's limit
  static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

  explicit SafetensorsFile(const std::filesystem::path& path) : mapping_(std::make_shared<MappedFile>(path)) {
    const std::string_view bytes = mapping_->bytes();
    if (bytes.size() < 8) fail("R402", detail::cat("not a safetensors file: ", bytes.size(), " bytes, expected at least 8"));
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    if (length > longest_header)
      fail("R402", detail::cat("not a safetensors file: header length ", length, " is over ", longest_header));
    if (length > bytes.size() - 8)
      fail("R402", detail::cat("header of ", length, " bytes, but the file ends after ", bytes.size() - 8));
    data_offset_ = 8 + length;
    read_header(parse(bytes.substr(8, length)));
    check_layout(bytes.size() - data_offset_);
  }

  [[nodiscard]] nlohmann::json parse(std::string_view header) const {
    if (header.empty() || header.front() != '{') fail("R402", "header does not begin with '{'");
    std::map<std::string, bool> seen;
    const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
      if (depth > 8) fail("R402", "header is nested too deeply");
      if (depth == 1 && event == nlohmann::json::parse_event_t::key) {
        const std::string name = value.get<std::string>();
        if (!seen.emplace(name, true).second) fail("R403", name, "is there twice");
      }
      return true;
    };
    try {
      return nlohmann::json::parse(header, watch);
    } catch (const nlohmann::json::exception& error) {
      fail("R402", "header is not JSON: " + detail::json_reason(error));
    }
  }

  void read_header(const nlohmann::json& header) {
    for (const auto& [name, value] : header.items()) {
      if (name == "__metadata__") {
        if (!value.is_object()) fail("R402", "__metadata__ is not an object of strings");
        for (const auto& [key, text] : value.items()) {
          if (!text.is_string()) fail("R402", "__metadata__ is not an object of strings");
          metadata_.emplace(key, text.get<std::string>());
        }
      } else {
        entries_.push_back(read_entry(name, value));
      }
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
  }

  [[nodiscard]] Entry read_entry(const std::string& name, const nlohmann::json& value) const {
    const auto list_of = [&](const char* key) {
      std::vector<std::uint64_t> numbers;
      const bool there = value.contains(key) && value[key].is_array();
      if (there)
        for (const auto& number : value[key])
          if (number.is_number_unsigned()) numbers.push_back(number.get<std::uint64_t>());
      if (!there || numbers.size() != value[key].size())
        fail("R403", name, detail::cat(key, " is not a list of whole numbers"));
      return numbers;
    };
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value["dtype"].is_string())
      fail("R403", name, "expected exactly dtype, shape and data_offsets");
    const auto type = detail::dtype_of_name(value["dtype"].get_ref<const std::string&>());
    if (!type) fail("R403", name, "unknown dtype " + value["dtype"].dump());
    Entry entry{name, *type, {}, 0, 0};
    std::uint64_t size = c10::elementSize(*type);
    bool overflows = false;
    bool empty = false;
    for (const std::uint64_t dimension : list_of("shape")) {
      overflows = overflows || dimension > INT64_MAX ||
                  (dimension > 0 && (__builtin_mul_overflow(size, dimension, &size) || size > INT64_MAX));
      empty = empty || dimension == 0;
      entry.shape.push_back(static_cast<std::int64_t>(dimension));
    }
    if (overflows) fail("R403", name, "shape " + value["shape"].dump() + " is too large");
    if (empty) size = 0;
    const auto offsets = list_of("data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      fail("R403", name, "data_offsets " + value["data_offsets"].dump() + " are not [begin, end]");
    entry.begin = offsets[0];
    entry.end = offsets[1];
    if (entry.end - entry.begin != size)
      fail("R403", name,
           detail::cat(value["dtype"].get<std::string>(), " of shape ", value["shape"].dump(), " needs ", size,
                       " bytes, data_offsets give ", entry.end - entry.begin));
    return entry;
  }

  void check_layout(std::uint64_t available) const {
    std::uint64_t end = 0;
    for (const Entry& entry : entries_) {
      if (entry.end > available)
        fail("R404", entry.name, detail::cat("ends at byte ", entry.end, ", but the file has ", available, " bytes of data"));
      if (entry.begin < end)
        fail("R404", entry.name, detail::cat("begins at byte ", entry.begin, ", inside the tensor before it"));
      if (entry.begin > end)
        fail("R404", entry.name, detail::cat("begins at byte ", entry.begin, ", but the tensors before it end at ", end));
      end = entry.end;
    }
    if (end != available) fail("R404", detail::cat(available - end, " bytes left over behind the last tensor"));
  }

  [[nodiscard]] const Entry& entry(const std::string& name) const {
    const auto found = index_.find(name);
    if (found == index_.end()) fail("R405", detail::cat("no tensor ", detail::in_quotes(name)));
    return entries_[found->second];
  }

  [[nodiscard]] static std::uintptr_t alignment(at::ScalarType type) {
    return c10::isComplexType(type) ? c10::elementSize(type) / 2 : c10::elementSize(type);
  }

  [[noreturn]] void fail(std::string_view code, const std::string& what) const {
    throw FileError(code, detail::cat(path().string(), ": ", what));
  }
  [[noreturn]] void fail(std::string_view code, const std::string& tensor, const std::string& what) const {
    fail(code, detail::cat("tensor ", detail::in_quotes(tensor), ": ", what));
  }

  std::shared_ptr<MappedFile> mapping_;
  std::uint64_t data_offset_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace toller
