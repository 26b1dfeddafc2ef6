// SPDX-License-Identifier: Apache-2.0
#include "toller/store/safetensors.hpp"

#include <random>

#include "support/temporary_folder.hpp"
#include "toller/store/safetensors_folder.hpp"
#include "toller/store/write_safetensors.hpp"

using namespace toller;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A safetensors file from a header text and data bytes.
std::string file_of(const std::string& header, const std::string& data, std::uint64_t claim = 0) {
  const std::uint64_t length = claim > 0 ? claim : header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

/// What opening a file of these bytes says, without the file's name.
std::string complaint(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.safetensors", bytes);
  try {
    const auto file = SafetensorsFile::open(path);
    for (const auto& name : file.names()) (void)file.tensor(name);
  } catch (const FileError& error) {
    std::string text = error.what();
    REQUIRE(text.find('\n') == std::string::npos);
    const std::string prefix = "[" + error.code() + "] " + path.string() + ": ";
    REQUIRE(text.compare(0, prefix.size(), prefix) == 0);
    return error.code() + " " + text.substr(prefix.size());
  }
  return "fine";
}

/// The same for one tensor "a" whose entry is given.
std::string entry_complaint(const std::string& entry, std::size_t data = 8) {
  return complaint(file_of("{\"a\":" + entry + "}", std::string(data, '\0')));
}

at::Tensor sample(at::ScalarType type) {
  const at::Tensor base = at::arange(6, at::kFloat).reshape({2, 3});
  if (c10::isComplexType(type)) return at::complex(base, base + 1).to(type);
  return type == at::ScalarType::Float8_e8m0fnu ? at::pow(2, base).to(type) : base.to(type);
}

}  // namespace

TEST_CASE("every dtype comes back bit for bit") {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const auto& dtype : toller::detail::dtypes) tensors.emplace_back(std::string(dtype.name), sample(dtype.type));
  write_safetensors(folder.path() / "all.safetensors", tensors);
  const auto file = SafetensorsFile::open(folder.path() / "all.safetensors");
  REQUIRE(file.names().size() == toller::detail::dtypes.size());
  REQUIRE(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    REQUIRE(file.dtype(name) == tensor.scalar_type());
    REQUIRE(file.shape(name) == std::vector<std::int64_t>{2, 3});
    const at::Tensor read = file.tensor(name);
    REQUIRE(read.scalar_type() == tensor.scalar_type());
    REQUIRE(std::memcmp(read.data_ptr(), tensor.data_ptr(), tensor.nbytes()) == 0);
  }
}

TEST_CASE("strided, conjugated, scalar, empty and shared tensors are written in full") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "views.safetensors";
  const at::Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
  const at::Tensor conjugated = at::complex(base, base + 1).conj();
  const NamedTensors tensors{{"transposed", base.t()},
                             {"every second", base.slice(1, 0, 4, 2)},
                             {"expanded", base[0].expand({5, 4})},
                             {"conjugated", conjugated},
                             {"scalar", at::scalar_tensor(7.5)},
                             {"empty", at::empty({0, 4})},
                             {"same", base},
                             {"same again", base},
                             {"needs gradient", base.clone().requires_grad_(true)}};
  write_safetensors(path, tensors, {});
  const auto file = SafetensorsFile::open(path);
  REQUIRE(file.metadata().empty());
  for (const auto& [name, tensor] : tensors) {
    INFO(name);
    REQUIRE(file.tensor(name).sizes() == tensor.sizes());
    REQUIRE(file.tensor(name).equal(tensor.resolve_conj()));
  }
}

TEST_CASE("the header is as the reference writes it") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_safetensors(path, {{"b", at::zeros({3}, at::kByte)}, {"w", at::ones({1, 2})}});
  std::string header = R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string bytes = file_bytes(path);
  REQUIRE(bytes.substr(8, header.size()) == header);
  REQUIRE(bytes.size() == 8 + header.size() + 11);
  REQUIRE(static_cast<unsigned char>(bytes[0]) == header.size());
}

TEST_CASE("a tensor outlives the file object, and writing to it leaves the file alone") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_safetensors(path, {{"w", at::ones({4})}});
  const std::string before = file_bytes(path);
  at::Tensor tensor = SafetensorsFile::open(path).tensor("w");
  tensor.add_(1);
  REQUIRE(tensor.sum().item<float>() == 8.0F);
  REQUIRE(file_bytes(path) == before);
  REQUIRE(SafetensorsFile::open(path).tensor("w").sum().item<float>() == 4.0F);
}

TEST_CASE("bytes that are not aligned are copied") {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const float value = 2.5F;
  const std::string data(reinterpret_cast<const char*>(&value), 4);
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const TemporaryFolder folder;
    const auto path = folder.write("x.safetensors", file_of(header + std::string(padding, ' '), data));
    const at::Tensor tensor = SafetensorsFile::open(path).tensor("a");
    REQUIRE(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 4 == 0);
    REQUIRE(tensor.item<float>() == 2.5F);
  }
}

TEST_CASE("files that are no safetensors files") {
  REQUIRE(complaint("") == "R402 not a safetensors file: 0 bytes, expected at least 8");
  REQUIRE(complaint("1234567") == "R402 not a safetensors file: 7 bytes, expected at least 8");
  REQUIRE(complaint(file_of("{}", "", 100'000'001)) ==
          "R402 not a safetensors file: header length 100000001 is over 100000000");
  REQUIRE(complaint("PK\3\4abcdefgh") == "R402 not a safetensors file: header length 7233733595305823056 is over 100000000");
  REQUIRE(complaint(file_of("{}", "", 3)) == "R402 header of 3 bytes, but the file ends after 2");
  REQUIRE(complaint(file_of("[]", "")) == "R402 header does not begin with '{'");
  REQUIRE(complaint(std::string(8, '\0')) == "R402 header does not begin with '{'");
  REQUIRE_THAT(complaint(file_of("{\"a\":", "")),
               ContainsSubstring("R402 header is not JSON: parse error at line 1, column 6"));
  REQUIRE_THAT(complaint(file_of("{\"a\xff\":1}", "")), ContainsSubstring("R402 header is not JSON"));
  REQUIRE(complaint(file_of("{\"a\":" + std::string(100'000, '['), "")) == "R402 header is nested too deeply");
  REQUIRE(complaint(file_of(R"({"__metadata__":{"a":1}})", "")) == "R402 __metadata__ is not an object of strings");
  REQUIRE(complaint(file_of(R"({"__metadata__":"a"})", "")) == "R402 __metadata__ is not an object of strings");
  REQUIRE(complaint(file_of("{}", "")) == "fine");
}

TEST_CASE("entries that are wrong name the tensor") {
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})") == "fine");
  REQUIRE(entry_complaint("7") == R"(R403 tensor "a": expected exactly dtype, shape and data_offsets)");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[2]})") ==
          R"(R403 tensor "a": expected exactly dtype, shape and data_offsets)");
  REQUIRE(entry_complaint(R"({"dtype":"F7","shape":[2],"data_offsets":[0,8]})") == R"(R403 tensor "a": unknown dtype "F7")");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})") ==
          R"(R403 tensor "a": shape is not a list of whole numbers)");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})") ==
          R"(R403 tensor "a": shape is not a list of whole numbers)");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8.0]})") ==
          R"(R403 tensor "a": data_offsets is not a list of whole numbers)");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})") ==
          R"(R403 tensor "a": data_offsets [8,0] are not [begin, end])");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})") ==
          R"(R403 tensor "a": data_offsets [0,4,8] are not [begin, end])");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})") ==
          R"(R403 tensor "a": F32 of shape [3] needs 12 bytes, data_offsets give 8)");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})") ==
          R"(R403 tensor "a": shape [4294967296,4294967296] is too large)");
  REQUIRE(entry_complaint(R"({"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]})") ==
          R"(R403 tensor "a": shape [4611686018427387904] is too large)");
  REQUIRE(complaint(file_of(
              R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
              "xx")) == R"(R403 tensor "a": is there twice)");
  REQUIRE(complaint(file_of(R"({"a\nb":1})", "")) == R"(R403 tensor "a\nb": expected exactly dtype, shape and data_offsets)");
  REQUIRE(complaint(file_of(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\1\2")) ==
          R"(R403 tensor "a": a BOOL is neither 0 nor 1)");
}

TEST_CASE("tensors must fill the file exactly") {
  const auto two = [](const std::string& first, const std::string& second, std::size_t bytes) {
    const auto entry = [](const std::string& offsets) {
      return R"({"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}";
    };
    return complaint(file_of("{\"a\":" + entry(first) + ",\"b\":" + entry(second) + "}", std::string(bytes, 'x')));
  };
  REQUIRE(two("[0,4]", "[4,8]", 8) == "fine");
  REQUIRE(two("[4,8]", "[0,4]", 8) == "fine");
  REQUIRE(two("[0,4]", "[3,7]", 7) == R"(R404 tensor "b": begins at byte 3, inside the tensor before it)");
  REQUIRE(two("[0,4]", "[0,4]", 4) == R"(R404 tensor "b": begins at byte 0, inside the tensor before it)");
  REQUIRE(two("[0,4]", "[5,9]", 9) == R"(R404 tensor "b": begins at byte 5, but the tensors before it end at 4)");
  REQUIRE(two("[1,5]", "[5,9]", 9) == R"(R404 tensor "a": begins at byte 1, but the tensors before it end at 0)");
  REQUIRE(two("[0,4]", "[4,8]", 7) == R"(R404 tensor "b": ends at byte 8, but the file has 7 bytes of data)");
  REQUIRE(two("[0,4]", "[4,8]", 10) == "R404 2 bytes left over behind the last tensor");
  REQUIRE(complaint(file_of("{}", "x")) == "R404 1 bytes left over behind the last tensor");
}

TEST_CASE("a missing tensor and a missing file are named") {
  const TemporaryFolder folder;
  const auto path = folder.write("x.safetensors", file_of("{}", ""));
  REQUIRE_THROWS_WITH(SafetensorsFile::open(path).tensor("w"), "[R405] " + path.string() + ": no tensor \"w\"");
  const auto absent = folder.path() / "y.safetensors";
  REQUIRE_THROWS_WITH(SafetensorsFile::open(absent), "[R401] " + absent.string() + ": no such file");
  REQUIRE_THROWS_WITH(SafetensorsFile::open(folder.path()),
                      "[R401] " + folder.path().string() + ": expected a file, found a folder");
}

TEST_CASE("damaged bytes load or give one of our errors, nothing else", "[laws]") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "small.safetensors";
  write_safetensors(path, {{"w", at::ones({2, 3})}, {"ids", at::arange(4)}, {"flag", at::ones({3}, at::kBool)}});
  const std::string good = file_bytes(path);
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    const std::size_t flips = 1 + below(4);
    for (std::size_t i = 0; i < flips; ++i)
      bytes[below(round % 2 == 0 ? 8 + 200 : bytes.size())] = static_cast<char>(below(256));
    if (round % 5 == 0) bytes.resize(below(bytes.size()));
    refused += complaint(bytes) == "fine" ? 0 : 1;
  }
  REQUIRE(refused > 1500);
  REQUIRE(refused < 3000);
}

TEST_CASE("a folder is one file or shards behind an index") {
  const TemporaryFolder folder;
  const auto dir = folder.path();
  const auto index = [&](const std::string& map) {
    return folder.write("model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  };
  REQUIRE_THROWS_WITH(SafetensorsFolder::open(dir), "[R407] " + dir.string() + ": no model.safetensors");
  folder.write("pytorch_model.bin", "");
  REQUIRE_THROWS_WITH(SafetensorsFolder::open(dir), "[R407] " + dir.string() +
                                                        ": no model.safetensors but a pytorch_model.bin, which "
                                                        "is not read: convert it to safetensors");
  write_safetensors(dir / "s1.safetensors", {{"a", at::ones({2})}});
  write_safetensors(dir / "s2.safetensors", {{"b", at::zeros({3})}});
  const auto path = index(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  const auto weights = SafetensorsFolder::open(dir);
  REQUIRE(weights.names() == std::vector<std::string>{"a", "b"});
  REQUIRE(weights.tensor("b").equal(at::zeros({3})));
  REQUIRE(weights.shape("a") == std::vector<std::int64_t>{2});
  REQUIRE_THROWS_WITH(weights.tensor("c"), "[R405] " + dir.string() + ": no tensor \"c\" in its safetensors files");

  const std::string start = "[R406] " + path.string() + ": ";
  index("[]");
  REQUIRE_THROWS_WITH(SafetensorsFolder::open(dir), start + "no weight_map");
  index(R"({"a":"../s1.safetensors"})");
  REQUIRE_THROWS_WITH(SafetensorsFolder::open(dir),
                      start + "tensor \"a\": \"../s1.safetensors\" is not the name of a file in this folder");
  index(R"({"a":"s2.safetensors"})");
  REQUIRE_THROWS_WITH(SafetensorsFolder::open(dir), start + "tensor \"a\" is not in s2.safetensors");
  index(R"({"a":"s3.safetensors"})");
  REQUIRE_THROWS_WITH(SafetensorsFolder::open(dir), "[R401] " + (dir / "s3.safetensors").string() + ": no such file");

  write_safetensors(dir / "model.safetensors", {{"whole", at::ones({1})}});
  REQUIRE(SafetensorsFolder::open(dir).names() == std::vector<std::string>{"whole"});
}
