// SPDX-License-Identifier: Apache-2.0
// A folder of its own for a test's files.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

/// Files are written into a fresh folder, which is the current one while this lives: errors then name the bare file.
class Scratch {
public:
  Scratch() : before_(std::filesystem::current_path()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "toller_text_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::filesystem::current_path(folder_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static std::string write(const std::string& name, std::string_view text) {
    std::ofstream(name, std::ios::binary) << text;
    return name;
  }

private:
  std::filesystem::path before_, folder_;
};
